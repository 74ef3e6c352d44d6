package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

const (
	samples     = 10                   // of the latency and of the clock
	maxLag      = 2                    // seconds since a replica has acknowledged; it does so once a second
	maxBehind   = 1 << 20              // bytes that a replica may be behind
	oldest      = 7                    // the oldest version that the tests run on
	messageWait = 5 * time.Millisecond // between two messages to a subscription that may not stand so far
)

// slow is a variable for the tests: a lock costs two round trips, and a renewal has a third of the TTL.
var slow = 100 * time.Millisecond

// latency reports how fast the server answers, and finds the offset of its clock by the fastest answer.
func (p *patient) latency(ctx context.Context) bool {
	var took []time.Duration
	for range samples {
		sent := time.Now()
		reply, err := p.do(ctx, "TIME").AsIntSlice()
		rtt := time.Since(sent)
		if err != nil || len(reply) != 2 {
			if err == nil {
				err = errors.New("malformed reply to TIME")
			}
			p.report(failure, "connection", err.Error(), p.target.advice(err))
			return false
		}
		if len(took) == 0 || rtt < slices.Min(took) {
			at := time.Unix(reply[0], reply[1]*int64(time.Microsecond))
			p.offset = at.Sub(sent.Add(rtt / 2).Round(0))
		}
		took = append(took, rtt)
	}
	slices.Sort(took)
	text := fmt.Sprintf("answers in %s, %s at most", micros(took[samples/2]), micros(took[samples-1]))
	if took[samples/2] > slow {
		p.report(warning, "latency", text, "every lock costs two such round trips: move the application nearer, or look at "+
			"the server's SLOWLOG and LATENCY")
	} else {
		p.report(ok, "latency", text, "")
	}
	return true
}

func micros(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

// learn reads INFO, which the other checks look at.
func (p *patient) learn(ctx context.Context) {
	text, err := p.do(ctx, "INFO").ToString()
	if err != nil {
		need := warning
		if p.target.quorum() {
			need = failure // the masters find a lost server by it
		}
		p.report(need, "info", err.Error(), "give the user +info: without it eviction, replicas, versions and restarts are "+
			"not seen")
		return
	}
	p.info = make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			p.info[name] = value
		}
	}
}

func (p *patient) version() {
	if p.info == nil {
		return
	}
	product, version := "Redis", p.info["redis_version"]
	if v := p.info["valkey_version"]; v != "" {
		product, version = "Valkey", v
	}
	seconds, _ := strconv.Atoi(p.info["uptime_in_seconds"])
	text := fmt.Sprintf("%s %s, up for %s", product, version, brief(time.Duration(seconds)*time.Second))
	number, _, _ := strings.Cut(version, ".")
	if major, err := strconv.Atoi(number); err != nil || major < oldest {
		p.report(warning, "version", text, "the locks are tested on Redis 7 and Valkey 8")
		return
	}
	p.report(ok, "version", text, "")
}

// scripts runs a script that changes nothing. In a Cluster it finds a key that this node answers for.
func (p *patient) scripts(ctx context.Context) {
	source := scripts.Source(scripts.Inspect)
	var err error
	for i := range 4096 {
		p.key = fmt.Sprintf("%s:{doctor:%d}", p.target.prefix, i)
		_, err = p.do(ctx, "EVAL", source, "1", p.key).ToArray()
		if refusal, refused := rueidis.IsRedisErr(err); refused {
			if _, moved := refusal.IsMoved(); moved {
				continue
			}
		}
		break
	}
	if err == nil {
		p.up = true
		p.report(ok, "scripts", "run", "")
		return
	}
	advice := p.target.advice(err)
	switch text := err.Error(); {
	case strings.Contains(text, "NOPERM"):
		advice = fmt.Sprintf("give the user +eval, +evalsha, +time, +hgetall and +zrange, and the keys ~%s:*",
			p.target.prefix)
	case strings.Contains(text, "no reply"): // to what may write; it has answered before
		advice = pausedAdvice
	case strings.Contains(text, "unknown command"):
		advice = "locks need a server that runs Lua scripts (EVAL and EVALSHA)"
	}
	p.report(failure, "scripts", err.Error(), advice)
}

const pausedAdvice = "the server answers, but not what may write: its clients may be paused for a failover or by " +
	"CLIENT PAUSE, which CLIENT UNPAUSE ends"

// writes finds out whether the server refuses writes now, without a write. Other checks report a replica and a right
// that is missing.
func (p *patient) writes(ctx context.Context) {
	if !p.up {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, p.target.timeout)
	defer cancel()
	err := transport.CheckWrite(bounded, p.client, p.key).Error()
	switch {
	case err == nil:
		p.report(ok, "writes", "accepted", "")
	case strings.Contains(err.Error(), "NOPERM"), strings.Contains(err.Error(), "READONLY") && p.info["role"] == "slave":
	case bounded.Err() != nil:
		p.report(failure, "writes", (&rwlock.NoReplyError{After: p.target.timeout}).Error(), pausedAdvice)
	default:
		p.report(failure, "writes", err.Error(), p.target.advice(err))
	}
}

// lack is what becomes of locks without some rights.
type lack struct {
	level level
	text  string
}

// What the rights are for, in the order of the report.
var (
	forLocks    = &lack{failure, "locks do not work"}
	forMessages = &lack{warning, "waiters ask at an interval, because they get no messages"}
	forShards   = &lack{warning, "each hand-off is sent to all nodes"}
	forInfo     = &lack{warning, "a restart and an evicting server are not noticed"}
	forList     = &lack{ok, "locks work, only fencelock list and serve do not"}

	lacks = []*lack{forLocks, forMessages, forShards, forInfo, forList}
)

// right is a command that the scripts or the client use. In command, KEY stands for a key and CHANNEL for a channel of
// the locks.
type right struct {
	command string
	lack    *lack
	only    func(*target) bool // the deployments that need it; nil: all of them
}

func inCluster(t *target) bool  { return t.cluster }
func atSentinel(t *target) bool { return t.sentinel != "" }

var rights = []right{
	{"eval return 1 KEY", forLocks, nil},
	{"evalsha 0000000000000000000000000000000000000000 1 KEY", forLocks, nil},
	{"time", forLocks, nil},
	{"hget KEY f", forLocks, nil},
	{"hgetall KEY", forLocks, nil},
	{"hincrby KEY f 1", forLocks, nil},
	{"hmget KEY f", forLocks, nil},
	{"hset KEY f v", forLocks, nil},
	{"hsetnx KEY f v", forLocks, nil},
	{"hdel KEY f", forLocks, nil},
	{"pexpire KEY 1", forLocks, nil},
	{"zadd KEY 1 m", forLocks, nil},
	{"zcard KEY", forLocks, nil},
	{"zpopmin KEY", forLocks, nil},
	{"zrange KEY 0 1", forLocks, nil},
	{"zrangebyscore KEY 0 1", forLocks, nil},
	{"zrem KEY m", forLocks, nil},
	{"zscore KEY m", forLocks, nil},
	{"discard", forLocks, nil},
	{"publish CHANNEL m", forMessages, nil},
	{"subscribe CHANNEL", forMessages, nil},
	{"unsubscribe CHANNEL", forMessages, nil},
	{"punsubscribe CHANNEL", forMessages, nil},
	{"sunsubscribe CHANNEL", forMessages, nil},
	{"ssubscribe CHANNEL", forShards, inCluster},
	{"spublish CHANNEL m", forShards, inCluster},
	{"cluster|slots", forLocks, inCluster},
	{"cluster|shards", forLocks, inCluster},
	{"role", forLocks, atSentinel},
	{"info server", forInfo, nil},
	{"scan 0", forList, nil},
}

// rights asks the server, from within a script, which of the commands the user may run. None of them is run.
func (p *patient) rights(ctx context.Context) {
	if !p.up {
		return
	}
	lacking := map[*lack][]string{}
	for _, r := range rights {
		if r.only != nil && !r.only(p.target) {
			continue
		}
		allowed, err := p.may(ctx, r.command)
		if err != nil && strings.Contains(err.Error(), "Invalid command") {
			name, _, _ := strings.Cut(r.command, " ")
			p.report(max(r.lack.level, warning), "rights", fmt.Sprintf("the server does not know the command %s: %s", name,
				r.lack.text), "rename-command in its configuration has taken it away: undo that")
			continue
		}
		if err != nil {
			p.report(warning, "rights", "the server does not show them: "+err.Error(), "compare them with SECURITY.md")
			return
		}
		if !allowed {
			name, _, _ := strings.Cut(r.command, " ")
			lacking[r.lack] = append(lacking[r.lack], "+"+name)
		}
	}
	user := cmp.Or(p.target.user, "default")
	if len(lacking) == 0 {
		p.report(ok, "rights", fmt.Sprintf("the user %q may do all that locks and list need", user), "")
	}
	for _, lack := range lacks {
		if commands := strings.Join(lacking[lack], " "); commands != "" {
			text := fmt.Sprintf("the user %q has not %s: %s", user, commands, lack.text)
			p.report(lack.level, "rights", text, fmt.Sprintf("ACL SETUSER %s ~%s:* &%s:c:* %s",
				user, p.target.prefix, p.target.prefix, commands))
		}
	}
}

// may reports whether the user may run a command of the table.
func (p *patient) may(ctx context.Context, command string) (bool, error) {
	const source = "return redis.acl_check_cmd(unpack(ARGV)) and 1 or 0"
	name, rest, _ := strings.Cut(command, " ")
	args := append(strings.Split(name, "|"), strings.Fields(rest)...)
	for i, arg := range args {
		switch arg {
		case "KEY":
			args[i] = p.key
		case "CHANNEL":
			args[i] = p.channel()
		}
	}
	return p.do(ctx, append([]string{"EVAL", source, "1", p.key}, args...)...).AsBool()
}

// channel returns a channel of no client, in a slot of this node.
func (p *patient) channel() string {
	_, tag, _ := strings.Cut(p.key, ":{")
	return p.target.prefix + ":c:{" + tag
}

// messages sends a message to this process, as a hand-off is sent.
func (p *patient) messages(ctx context.Context) {
	if !p.up {
		return
	}
	begun := time.Now()
	if err := p.hear(ctx); err != nil {
		p.report(warning, "messages", err.Error(), fmt.Sprintf("%s; give the user +subscribe, +publish (in a Cluster "+
			"+ssubscribe, +spublish) and the channels &%s:c:*", forMessages.text, p.target.prefix))
		return
	}
	p.report(ok, "messages", "arrive, "+micros(time.Since(begun))+" after the request to subscribe", "")
}

// hear subscribes to a channel, and sends messages to it until one arrives.
func (p *patient) hear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.target.timeout)
	defer cancel()
	publish, subscribe := "PUBLISH", p.client.B().Subscribe().Channel(p.channel()).Build()
	if p.target.cluster {
		publish, subscribe = "SPUBLISH", p.client.B().Ssubscribe().Channel(p.channel()).Build()
	}
	heard, refused := make(chan struct{}), make(chan error, 1)
	once := sync.OnceFunc(func() { close(heard) })
	go func() { refused <- p.client.Receive(ctx, subscribe, func(rueidis.PubSubMessage) { once() }) }()
	for {
		if err := p.do(ctx, publish, p.channel(), "doctor").Error(); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-heard:
			return nil
		case err := <-refused:
			return cmp.Or(err, errors.New("the server ended the subscription"))
		case <-time.After(messageWait):
		case <-ctx.Done():
			return fmt.Errorf("no message within %v", p.target.timeout)
		}
	}
}

func (p *patient) eviction() {
	policy, known := p.info["maxmemory_policy"]
	if !known {
		return
	}
	limit := p.info["maxmemory"]
	switch {
	case policy == "noeviction":
		p.report(ok, "eviction", "noeviction", "")
	case limit == "0":
		p.report(warning, "eviction", policy+", but maxmemory is not limited", "CONFIG SET maxmemory-policy noeviction, and "+
			"in the configuration file: the server would evict locks as soon as it is limited")
	default:
		p.report(failure, "eviction", policy+": the server may drop locks that are held", "CONFIG SET maxmemory-policy "+
			"noeviction, and in the configuration file")
	}
}

// persistence reports failed saves.
func (p *patient) persistence() {
	if p.info == nil {
		return
	}
	var failed []string
	for _, field := range strings.Fields("rdb_last_bgsave_status aof_last_bgrewrite_status aof_last_write_status") {
		if status := p.info[field]; status != "" && status != "ok" {
			failed = append(failed, field+" "+status)
		}
	}
	if failed == nil {
		p.report(ok, "persistence", "no save has failed", "")
		return
	}
	p.report(warning, "persistence", strings.Join(failed, ", "), transport.DiskCure)
}

// role reports whether the server grants locks, and how far its replicas are behind.
func (p *patient) role() {
	if p.info == nil {
		return
	}
	if role := p.info["role"]; role != "master" {
		p.report(failure, "role", "the server is a replica of "+p.info["master_host"]+":"+p.info["master_port"],
			"locks need its master: give its address, or find it by -sentinel or -cluster")
		return
	}
	if p.target.cluster && p.info["cluster_enabled"] == "0" {
		p.report(failure, "role", "the server is no node of a Cluster", "leave -cluster out")
		return
	}
	n, _ := strconv.Atoi(p.info["connected_slaves"])
	if n == 0 {
		if p.target.sentinel != "" || p.target.cluster {
			p.report(warning, "replicas", "none: nothing takes the place of this master", "add a replica")
		} else {
			p.report(ok, "role", "master, without replicas", "")
		}
		return
	}
	at, _ := strconv.ParseInt(p.info["master_repl_offset"], 10, 64)
	for i := range n {
		r := map[string]string{}
		for part := range strings.SplitSeq(p.info["slave"+strconv.Itoa(i)], ",") {
			name, value, _ := strings.Cut(part, "=")
			r[name] = value
		}
		offset, _ := strconv.ParseInt(r["offset"], 10, 64)
		lag, _ := strconv.Atoi(r["lag"])
		text := fmt.Sprintf("%s:%s is %s, %d bytes behind, heard from %d s ago", r["ip"], r["port"], r["state"],
			max(at-offset, 0), lag)
		switch {
		case r["state"] != "online":
			p.report(warning, "replicas", text, "wait until it has synchronized: a failover to it would lose locks")
		case lag > maxLag || at-offset > maxBehind:
			p.report(warning, "replicas", text, "a failover to it would lose the last grants; see rwlock.WithReplicas")
		default:
			p.report(ok, "replicas", text, "")
		}
	}
}

func (p *patient) clock() {
	if p.target.quorum() {
		return // compared with each other
	}
	text := fmt.Sprintf("the server's clock is within %s of this machine's", brief(max(p.offset.Abs(), time.Millisecond)))
	if p.offset.Abs() > time.Second {
		p.report(warning, "clock", text, "locks do not compare the two; tokens follow the server's clock, so keep it "+
			"synchronized (NTP), and never set it back")
		return
	}
	p.report(ok, "clock", text, "")
}

func (p *patient) readMarker(ctx context.Context) {
	if p.up && p.target.quorum() {
		p.marker, _ = p.do(ctx, "HGETALL", p.target.prefix+":master").AsStrMap()
	}
}

// vote reports until when a master of the set has no vote.
func (p *patient) vote() {
	until, _ := strconv.ParseInt(p.marker["until"], 10, 64)
	left := time.UnixMilli(until).Sub(time.Now().Add(p.offset))
	switch {
	case p.marker["run"] != "" && p.info["run_id"] != "" && p.marker["run"] != p.info["run_id"]:
		p.report(warning, "vote", "the server has restarted, and no client has seen it since", "start a client: the master "+
			"gets a vote after the longest TTL of all clients")
	case left > 0:
		p.report(warning, "vote", "none for another "+brief(left)+": it is new, or may have lost valid leases", "wait")
	default:
		p.report(ok, "vote", "in seat "+p.marker["seat"]+" of its set", "")
	}
}
