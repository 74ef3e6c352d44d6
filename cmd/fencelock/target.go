package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// target is the Redis that is asked, and the user that asks.
type target struct {
	addrs          addresses
	sentinel       string // the name of the master, if addrs are sentinels
	cluster        bool   // addrs are nodes of a Cluster
	user, password string
	sentinelUser   string
	sentinelPass   string
	db             int
	tls            bool
	caFile         string
	certFile       string
	keyFile        string
	serverName     string
	skipVerify     bool
	prefix         string
	by             string // who breaks holds
	timeout        time.Duration
	ttl            time.Duration // of the locks that it takes; 0 for none
	quarantine     time.Duration // of a quorum; 0 for the default
}

// addresses is a flag that may be given several times, with a URL or with one or more addresses each.
type addresses []string

func (a *addresses) String() string { return strings.Join(*a, ",") }

func (a *addresses) Set(text string) error {
	if isURL(text) {
		*a = append(*a, text)
		return nil
	}
	for addr := range strings.SplitSeq(text, ",") {
		if addr == "" {
			return errors.New("an address is empty")
		}
		*a = append(*a, addr)
	}
	return nil
}

// isURL reports whether a text is a URL, or was meant as one.
func isURL(text string) bool { return strings.Contains(text, "://") || strings.Contains(text, "@") }

// define adds the flags of the connection. given returns the names of the flags that were set, after they were parsed.
func (t *target) define(flags *flag.FlagSet) (given func() map[string]bool) {
	flags.Var(&t.addrs, "addr", "`host:port` of the server, the path of its socket, or a URL; several, with commas\n"+
		"between them, are the masters of a quorum, or sentinels with -sentinel, or nodes with -cluster")
	flags.StringVar(&t.sentinel, "sentinel", "", "the `name` of the master at the sentinels")
	flags.BoolVar(&t.cluster, "cluster", false, "the servers are nodes of one Cluster")
	flags.StringVar(&t.user, "user", "", "the user at the servers")
	flags.StringVar(&t.password, "password", "", "its password; better in FENCELOCK_PASSWORD, which other users of this\n"+
		"machine do not see")
	flags.StringVar(&t.sentinelUser, "sentinel-user", "", "the user at the sentinels")
	flags.StringVar(&t.sentinelPass, "sentinel-password", "", "its password, or in FENCELOCK_SENTINEL_PASSWORD")
	flags.IntVar(&t.db, "db", 0, "the number of the database")
	flags.BoolVar(&t.tls, "tls", false, "connect by TLS")
	flags.StringVar(&t.caFile, "ca", "", "the `file` with the certificates to trust, for -tls")
	flags.StringVar(&t.certFile, "cert", "", "the `file` with a certificate for this client, for -tls")
	flags.StringVar(&t.keyFile, "key", "", "the `file` with its key")
	flags.StringVar(&t.serverName, "server-name", "", "the name in the servers' certificate, for -tls")
	flags.StringVar(&t.prefix, "keys", "fencelock", "the first part of the `keys`: WithPrefix of the application")
	flags.DurationVar(&t.timeout, "timeout", 2*time.Second, "for each answer of a server")
	return func() map[string]bool {
		set := map[string]bool{}
		flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
		return set
	}
}

// complete fills in from the environment what no flag has set. A flag goes before a part of the address.
func (t *target) complete(given map[string]bool, getenv func(string) string) error {
	source, texts := "-addr", t.addrs
	for _, variable := range []string{"FENCELOCK_URL", "REDIS_URL"} {
		if text := getenv(variable); text != "" && len(texts) == 0 {
			source = variable
			if err := texts.Set(text); err != nil {
				return fmt.Errorf("%s: %w", source, err)
			}
		}
	}
	if len(texts) == 0 {
		texts = addresses{""}
	}
	t.addrs = nil
	asked := t.sentinel
	for i, text := range texts {
		servers, err := readAddress(text, asked)
		if err != nil {
			return fmt.Errorf("%s: %w", source, err) // without the text, which may have a password
		}
		before := *t
		if t.take(servers, given); i > 0 && !t.alike(before) {
			return fmt.Errorf("%s: the addresses differ in more than their servers: say what is right by -user, "+
				"-password, -db and -tls", source)
		}
	}
	if t.password == "" {
		t.password = getenv("FENCELOCK_PASSWORD")
	}
	if t.sentinelPass == "" {
		t.sentinelPass = getenv("FENCELOCK_SENTINEL_PASSWORD")
	}
	switch {
	case t.sentinel != "" && t.cluster:
		return errors.New("-sentinel and -cluster exclude each other")
	case t.timeout <= 0:
		return errors.New("-timeout must be positive")
	case !t.tls && (t.caFile != "" || t.certFile != "" || t.keyFile != "" || t.serverName != ""):
		return errors.New("-ca, -cert, -key and -server-name need -tls")
	}
	return nil
}

// readAddress reads one address. Without a URL the host or the port may be missing.
func readAddress(text, sentinel string) (a transport.Address, err error) {
	if !isURL(text) && !strings.HasPrefix(text, "/") {
		port := "6379"
		if sentinel != "" {
			port = "26379"
		}
		text = transport.WithDefaults(text, port)
	}
	a, rule := transport.ReadAddress(text, sentinel)
	if rule != "" {
		return a, errors.New(rule)
	}
	return a, nil
}

// alike reports whether another target differs in its servers alone.
func (t *target) alike(o target) bool {
	return t.user == o.user && t.password == o.password && t.db == o.db && t.tls == o.tls &&
		t.skipVerify == o.skipVerify && t.cluster == o.cluster && t.sentinel == o.sentinel
}

// take adds the servers of the address, and takes over what no flag has set.
func (t *target) take(a transport.Address, given map[string]bool) {
	t.addrs = append(t.addrs, a.Option.InitAddress...)
	if !given["user"] {
		t.user = a.Option.Username
	}
	if !given["password"] {
		t.password = a.Option.Password
	}
	if !given["db"] {
		t.db = a.Option.SelectDB
	}
	if config := a.Option.TLSConfig; !given["tls"] {
		t.tls, t.skipVerify = config != nil, config != nil && config.InsecureSkipVerify
	}
	if !given["cluster"] {
		t.cluster = a.Cluster
	}
	t.sentinel = a.Option.Sentinel.MasterSet
}

// quorum reports whether the addresses are masters that decide together.
func (t *target) quorum() bool { return len(t.addrs) > 1 && t.sentinel == "" && !t.cluster }

// where says which keys are looked at, and the flags that would look elsewhere.
func (t *target) where() string {
	return fmt.Sprintf("under the keys %q in database %d of %s (-keys, -db, -addr)",
		t.prefix+":*", t.db, strings.Join(t.addrs, ", "))
}

// advised returns an error of a server with what to do about it, if that is known.
func (t *target) advised(err error) error {
	_, node := errors.AsType[*rwlock.NodeError](err)
	if _, before := errors.AsType[*connectionError](err); before || !node && !errors.Is(err, rwlock.ErrNoQuorum) {
		return err
	}
	return &connectionError{err, t.advice(err)}
}

func (t *target) option() (o rueidis.ClientOption, err error) {
	o.Username, o.Password, o.SelectDB, o.ClientName = t.user, t.password, t.db, "fencelock"
	o.Dialer.Timeout, o.DialCtxFn = t.timeout, dialOf
	if t.tls {
		if o.TLSConfig, err = t.tlsConfig(); err != nil {
			return o, err
		}
	}
	if t.sentinel != "" {
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: t.sentinel, Username: t.sentinelUser, Password: t.sentinelPass, TLSConfig: o.TLSConfig,
		}
	}
	return o, nil
}

func (t *target) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{
		ServerName: t.serverName, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: t.skipVerify, //nolint:gosec // by the word of the URL
	}
	if t.caFile != "" {
		pem, err := os.ReadFile(t.caFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", t.caFile)
		}
	}
	if t.certFile != "" || t.keyFile != "" {
		pair, err := tls.LoadX509KeyPair(t.certFile, t.keyFile)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// connection is a locker over the target.
type connection struct {
	locker  *rwlock.Locker
	masters []rueidis.Client
	failed  []error // by master: why it does not answer; nil if it does
}

// connect is dial that ctx ends, also while a server hangs.
func (t *target) connect(ctx context.Context) (c *connection, err error) {
	dialed := make(chan func())
	go func() {
		own, failure := t.dial()
		select {
		case dialed <- func() { c, err = own, failure }:
		case <-ctx.Done():
			if own != nil {
				own.close()
			}
		}
	}()
	select {
	case result := <-dialed:
		result()
		return c, err
	case <-ctx.Done():
		return nil, errs.Cause(ctx)
	}
}

// dial dials the masters. It succeeds with one of several that answers.
func (t *target) dial() (*connection, error) {
	option, err := t.option()
	if err != nil {
		return nil, err
	}
	addrs := []string(t.addrs)
	if t.sentinel != "" || t.cluster {
		option.InitAddress, addrs = addrs, []string{""}
	}
	c := new(connection)
	if err = c.dial(addrs, option); err == nil {
		options := []rwlock.Option{
			rwlock.WithPrefix(t.prefix), rwlock.WithReleaseTimeout(t.timeout), t.nodeTimeout(),
			rwlock.WithLogger(slog.New(slog.DiscardHandler)), // errors are printed by the sub-command
		}
		if t.by != "" {
			options = append(options, rwlock.WithMeta(t.by))
		}
		if t.quorum() {
			if t.quarantine != 0 {
				options = append(options, redlock.WithQuarantine(t.quarantine))
			}
			c.locker, err = redlock.New(c.masters, options...)
		} else {
			c.locker, err = rwlock.New(c.masters[0], options...)
		}
	}
	if err == nil && !slices.Contains(c.failed, nil) {
		err = errs.Join(c.failed...)
	}
	if err != nil {
		c.close()
		return nil, &connectionError{err, t.advice(err)}
	}
	return c, nil
}

// nodeTimeout has one of several servers awaited for as long as -timeout says where locks are asked for, too: else that
// is half a second. Half of the TTL is left for the command.
func (t *target) nodeTimeout() rwlock.Option {
	return settings.LockerOption(func(l *settings.Locker) {
		l.NodeTimeout = min(t.timeout, cmp.Or(max(t.ttl, 0), l.Lock.TTL)/2, l.Lock.TTL/2)
	})
}

// connectionError is a target that cannot be used, and what to do about it.
type connectionError struct {
	cause  error
	advice string
}

func (e *connectionError) Error() string {
	if e.advice == "" {
		return plain(e.cause)
	}
	return plain(e.cause) + "\n-> " + e.advice
}

func (e *connectionError) Unwrap() error { return e.cause }

// plain returns the text of an error without what names the package or its options.
func plain(err error) string {
	return oneLine(apiSpeak.Replace(err.Error()))
}

// oneLine returns a text without line breaks, by which a server could show a line of its own.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", `\n`) }

var apiSpeak = strings.NewReplacer(
	"WithQuarantine sets the longest TTL", "-quarantine sets the longest TTL",
	"rwlock: no usable answer from Redis; ", "", "rwlock: ", "",
	", the limit of base.Dialer.Timeout and base.Sentinel.Dialer.Timeout", "", ", the limit of base.Dialer.Timeout", "",
	": leave addr empty and name the node in base.InitAddress, with", "; -cluster needs",
	": leave addr empty, name the sentinels in base.InitAddress and the master that they watch in "+
		"base.Sentinel.MasterSet", "",
)

// advice says what to do about a server that cannot be used.
func (t *target) advice(err error) string {
	text := err.Error()
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
	}
	switch {
	case has("WRONGPASS"):
		return "check -user and -password (FENCELOCK_PASSWORD)"
	case has("NOAUTH"):
		return "the server wants a password: -password or FENCELOCK_PASSWORD, and -user if it is not the default user"
	case has("NOPERM"):
		return "give the user the rights that SECURITY.md lists for this deployment; list and serve need +scan besides; " +
			"fencelock doctor names what is missing"
	case has("READONLY"):
		return "locks need the master of this replica: give its address, or find it by -sentinel or -cluster"
	case has("x509", "certificate"):
		return "name the certificates to trust with -ca, or the name in the server's certificate with -server-name"
	case has("is a node of a Cluster"):
		return "add -cluster"
	case has("is a sentinel"):
		return "add -sentinel and the name of the master"
	case has("No such master"):
		return "check the name in -sentinel, or in the URL: the sentinels watch no master of that name"
	case has("are no sentinels"):
		return "leave -sentinel out"
	case has("are no Cluster"):
		return "leave -cluster out"
	case has("odd number"):
		return "one server, or all masters of the quorum; servers that are one Cluster need -cluster, sentinels -sentinel"
	case has("unknown message type"):
		return "what answers there is no Redis: check the host and the port"
	case t.tls && has("no reply", "handshake", "EOF"):
		return "does the server speak TLS at this port? If not, leave -tls out, or write redis:// instead of rediss://"
	case !t.tls && has("no reply"):
		return "the server accepts the connection, and does not answer: it hangs, is busy with a long command, or its " +
			"clients are paused (CLIENT UNPAUSE); or it speaks TLS at this port: then add -tls"
	case !t.tls && has("first command (HELLO)"):
		return "the other side ends each connection: if it speaks TLS at this port, add -tls; if it is a proxy, are its " +
			"servers up? A proxy that does not know HELLO, such as twemproxy, cannot carry locks"
	case !t.tls && has("EOF", "reset", "closed"):
		return "the server ends the connection: if it speaks TLS at this port, add -tls"
	default:
		if cure := transport.Cure(err); cure != "" {
			return cure
		}
		if _, refused := errors.AsType[*rueidis.RedisError](err); refused || has("the server answers with") {
			return "" // it says enough
		}
		return "is the server running, is the address right, and does a firewall let this machine through?"
	}
}

// dial makes a client for each master. It fails where there can be none, not where a master does not answer.
func (c *connection) dial(addrs []string, option rueidis.ClientOption) error {
	c.masters, c.failed = make([]rueidis.Client, len(addrs)), make([]error, len(addrs))
	var dials sync.WaitGroup
	for i, addr := range addrs {
		dials.Go(func() {
			if c.masters[i], c.failed[i] = rwlock.Dial(addr, option); c.failed[i] == nil {
				c.failed[i] = answers(c.masters[i], option.Dialer.Timeout)
			}
		})
	}
	dials.Wait()
	if i := slices.Index(c.masters, nil); i >= 0 {
		return c.failed[i]
	}
	return nil
}

// answers returns why the server does not answer, or nil. It asks for the time, since a server that cannot save its
// data refuses a PING.
func answers(client rueidis.Client, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := client.Do(ctx, client.B().Time().Build()).Error()
	if errors.Is(err, context.DeadlineExceeded) { // of the dial or of this call
		return &rwlock.NoReplyError{After: limit}
	}
	if refusal, ok := rueidis.IsRedisErr(err); ok && strings.HasPrefix(refusal.Error(), "NOPERM") {
		return nil // an answer; what needs the right reports it
	}
	return err
}

func (c *connection) close() {
	if c.locker != nil {
		_ = c.locker.Close()
	}
	for _, client := range c.masters {
		if client != nil {
			client.Close()
		}
	}
}
