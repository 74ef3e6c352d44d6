package transport

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// The slots of a Cluster are fetched periodically while calls go out, and soon after a sign of a change. Fetches that
// find no change become less frequent. The client knows the master of a Sentinel group, so looking it up costs nothing.
const (
	slotsEvery   = 5 * time.Second
	slotsGap     = 50 * time.Millisecond
	slotsGapMost = 500 * time.Millisecond
	addressEvery = 250 * time.Millisecond
	addressSoon  = 10 * time.Millisecond
	dialLeads    = 2 * time.Second // a client dials a new master, and asks for its role, before it uses it
)

// topology tracks which servers answer for a master: the owners of a Cluster's slots, the master of a Sentinel group.
type topology struct {
	m *Master
	// watched is the master's address at the last look. The first look is before any call. Otherwise a server that
	// replaced the first one immediately would be taken for the first.
	watched string
	slots   atomic.Pointer[slotMap] // of a Cluster, once they are known
	doubt   chan struct{}           // requests a look at the servers
	used    atomic.Bool             // since the last look
	plain   atomic.Bool             // a Cluster without sharded messages
}

func (t *topology) suspect() {
	select {
	case t.doubt <- struct{}{}:
	default:
	}
}

func (t *topology) watchSlots() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	gap := slotsGap
	for t.m.cfg.Life.Err() == nil {
		known, changed := t.learnSlots()
		t.used.Store(false)
		if changed {
			gap = slotsGap
		}
		timer.Reset(gap)
		select {
		case <-timer.C:
		case <-t.m.cfg.Life.Done():
			return
		}
		// A server that was promoted gets its slots before the client has connected to it. Until it is direct, its
		// hand-offs are slower, so the next looks follow soon, up to the longest gap once.
		lastTry := gap == slotsGapMost
		gap = min(2*gap, slotsGapMost)
		s := t.slots.Load()
		direct := s == nil || !slices.ContainsFunc(*s, func(r slotRange) bool { return !r.node.direct })
		if known && (direct || lastTry) && t.calm(timer) && direct {
			gap = slotsGap
		}
	}
}

// calm waits until a look is due, and reports whether the look is periodic.
func (t *topology) calm(timer *time.Timer) bool {
	for {
		timer.Reset(slotsEvery)
		select {
		case <-t.doubt:
			return false
		case <-timer.C:
			if t.used.Load() {
				return true
			}
		case <-t.m.cfg.Life.Done():
			return true
		}
	}
}

// watchAddress detects when the client has switched to another server.
func (t *topology) watchAddress() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var soonUntil time.Duration
	for {
		every := addressEvery
		if t.m.cfg.Clock.Now().Mono < soonUntil {
			every = addressSoon
		}
		timer.Reset(every)
		dialled := t.m.NextDial()
		select {
		case <-timer.C:
		case <-t.doubt:
			soonUntil = t.m.cfg.Clock.Now().Mono + dialLeads
		case <-dialled:
			soonUntil = t.m.cfg.Clock.Now().Mono + dialLeads
		case <-t.m.cfg.Life.Done():
			return
		}
		if now := t.m.Addr(); now != t.watched {
			t.watched = now
			home := t.m.home
			home.answers.Store(0)
			home.met.Store(false)
			home.clock.forget(t.m.cfg.Clock.Now().Mono)
			home.succeeded()
			home.listener.look()
			t.m.cfg.OnMoved(t.m)
		}
	}
}

// slotMap maps the slots of a Cluster to the nodes that own them, as ranges in order. It may be out of date, which
// costs at most a redirection: the servers refuse keys that are not theirs.
type slotMap []slotRange

type slotRange struct {
	first, last uint16
	node        *Node
}

// owner returns nil for a slot without a known owner.
func (s slotMap) owner(slot uint16) *Node {
	i := sort.Search(len(s), func(i int) bool { return s[i].last >= slot })
	if i < len(s) && s[i].first <= slot {
		return s[i].node
	}
	return nil
}

func (s slotMap) has(n *Node) bool {
	return slices.ContainsFunc(s, func(r slotRange) bool { return r.node == n })
}

func (s slotMap) nodes() (all []*Node) {
	for _, r := range s {
		if !slices.Contains(all, r.node) {
			all = append(all, r.node)
		}
	}
	return all
}

// direct returns the nodes of a Cluster that the client certainly reaches.
func (t *topology) direct() (nodes []*Node) {
	if s := t.slots.Load(); s != nil {
		nodes = slices.DeleteFunc(s.nodes(), func(n *Node) bool { return !n.direct })
	}
	return nodes
}

// ownership is a range of slots as a server reports it.
type ownership struct {
	first, last uint16
	addr        string
}

// learnSlots fetches the slot owners from the Cluster and stores them. known reports whether a server answered, changed
// whether the map is different.
func (t *topology) learnSlots() (known, changed bool) {
	owners, err := t.askOwners()
	if err != nil {
		if _, refused := refusalOf(err); refused && t.slots.Load() == nil {
			t.plain.Store(true) // one node for everything, and messages by broadcast
		}
		return false, false
	}
	var before slotMap
	if s := t.slots.Load(); s != nil {
		before = *s
	}
	now := t.mapOf(owners, before)
	if slices.Equal(before, now) {
		return true, false
	}
	t.slots.Store(&now)
	t.changeNodes(before, now)
	return true, true
}

// mapOf returns the slot map of the owners, with a new node for each owner that has none.
func (t *topology) mapOf(owners []ownership, before slotMap) (now slotMap) {
	clients := t.m.client.Nodes()
	nodes := make(map[string]*Node)
	for _, n := range before.nodes() {
		if !n.stale.Load() && (n.direct || clients[n.addr] == nil) {
			nodes[n.addr] = n
		}
	}
	for _, o := range owners {
		n := nodes[o.addr]
		if n == nil {
			n = newNode(t.m, o.addr, clients[o.addr])
			nodes[o.addr] = n
		}
		now = append(now, slotRange{o.first, o.last, n})
	}
	return now
}

// changeNodes starts new nodes and ends nodes that are gone. Requests so far to a node that stays may have been
// answered by the previous owner of their slot.
func (t *topology) changeNodes(before, now slotMap) {
	for _, n := range now.nodes() {
		if before.has(n) {
			n.answeredByOther()
		} else {
			t.m.cfg.Spawn(n.run)
		}
		n.listener.look()
	}
	for _, n := range before.nodes() {
		if !now.has(n) {
			n.end()
		}
	}
	t.m.home.listener.look()
	t.m.cfg.OnMoved(t.m)
}

// A server has a second to report its slots, and only a few servers are asked. The next look asks again.
const (
	slotsTimeout = time.Second
	slotsServers = 3
)

func (t *topology) askOwners() (owners []ownership, err error) {
	err = errors.New("no server of the cluster is known")
	for i, s := range t.slotServers() {
		if i == slotsServers || t.m.cfg.Life.Err() != nil {
			break
		}
		ctx, cancel := context.WithTimeout(t.m.cfg.Life, slotsTimeout)
		rows, failed := s.client.Do(withoutDeadline{ctx}, s.client.B().ClusterSlots().Build()).ToArray()
		cancel()
		if err = failed; err != nil {
			continue
		}
		if owners, err = readOwners(rows, s.Addr); err == nil {
			return owners, nil
		}
	}
	return nil, err
}

// Shard is one server that has keys of a master: an owner of a Cluster's slots, or the only server.
type Shard struct {
	Addr   string
	m      *Master
	client rueidis.Client // nil if the client does not know the server so far
}

// Shards returns the servers that have the master's keys now. As long as version stays the same, no key has moved from
// one server to another.
func (t *topology) Shards() (all []Shard, version string, err error) {
	if !t.m.cluster {
		addr := t.m.Addr()
		return []Shard{{addr, t.m, t.m.client}}, fmt.Sprint(addr, t.m.Dials()), nil
	}
	owners, err := t.askOwners()
	if err != nil {
		return nil, "", err
	}
	clients := t.m.client.Nodes()
	for _, o := range owners {
		if !slices.ContainsFunc(all, func(s Shard) bool { return s.Addr == o.addr }) {
			all = append(all, Shard{o.addr, t.m, clients[o.addr]})
		}
	}
	return all, fmt.Sprint(owners), nil
}

// FindKey returns the first of the keys that the server answers for, and why it takes no write of it now, or nil.
func (s Shard) FindKey(ctx context.Context, keys iter.Seq[string]) (key string, err error) {
	if s.client == nil {
		return "", errors.New("not connected to this server of the cluster")
	}
	for key = range keys {
		sent := s.m.cfg.Clock.Now()
		err = s.m.home.nameFailure(ctx, CheckWrite(ctx, s.client, key), sent).Error()
		if refusal, refused := rueidis.IsRedisErr(err); refused {
			if _, elsewhere := refusal.IsMoved(); elsewhere {
				continue
			}
		}
		return key, err
	}
	return key, err
}

// scanCount is how many keys a server looks at in one step: about a tenth of a millisecond of its time.
const scanCount = "512"

// Scan returns some of the keys that match the pattern, and the cursor of the next step, 0 at the end. A key may be
// returned more than once.
func (s Shard) Scan(ctx context.Context, pattern string, cursor uint64) (keys []string, next uint64, err error) {
	if s.client == nil {
		return nil, 0, errors.New("not connected to this server of the cluster")
	}
	// The client would repeat a SCAN of its own until ctx ends, and the reason of the failure would be lost.
	step := s.client.B().Arbitrary("SCAN", strconv.FormatUint(cursor, 10), "MATCH", pattern, "COUNT", scanCount).Build()
	sent := s.m.cfg.Clock.Now()
	r := s.client.Do(withoutDeadline{ctx}, step)
	entry, err := s.m.home.nameFailure(ctx, r, sent).AsScanEntry()
	if err != nil && ctx.Err() != nil {
		err = &NoReply{After: s.m.cfg.Clock.Now().Mono - sent.Mono}
	}
	return entry.Elements, entry.Cursor, err
}

// Replica is as that of a Node.
func (s Shard) Replica(ctx context.Context, key string) error {
	return refusesAsReplica(ctx, s.client, key)
}

// slotServers returns all servers in the order in which to ask them: first the slot owners that have answered a moment
// ago, then all other servers.
func (t *topology) slotServers() (servers []Shard) {
	clients := t.m.client.Nodes()
	if s := t.slots.Load(); s != nil {
		owners, lately := s.nodes(), t.m.cfg.Clock.Now().Mono-recently
		rand.Shuffle(len(owners), func(i, j int) { owners[i], owners[j] = owners[j], owners[i] })
		silent := func(n *Node) int {
			if n.clock.answeredSince(lately) {
				return 0
			}
			return 1
		}
		slices.SortStableFunc(owners, func(a, b *Node) int { return silent(a) - silent(b) })
		for _, n := range owners {
			if c := clients[n.addr]; c != nil && !n.Failing() {
				servers = append(servers, Shard{n.addr, t.m, c})
				delete(clients, n.addr)
			}
		}
	}
	for addr, c := range clients {
		servers = append(servers, Shard{addr, t.m, c})
	}
	return servers
}

// readOwners parses the reply to CLUSTER SLOTS: for each range its first and last slot and its servers, the owner
// first, each as address, port and more. An empty address stands for the address of the asked server. A missing address
// is unknown.
func readOwners(rows []rueidis.RedisMessage, asked string) (owners []ownership, err error) {
	host, _, _ := net.SplitHostPort(asked)
	for _, row := range rows {
		fields, err := row.ToArray()
		if err != nil || len(fields) < 3 {
			return nil, fmt.Errorf("malformed reply to CLUSTER SLOTS: range of %d fields", len(fields))
		}
		first, err1 := fields[0].AsInt64()
		last, err2 := fields[1].AsInt64()
		owner, err3 := fields[2].ToArray()
		if err := errors.Join(err1, err2, err3); err != nil || first < 0 || last >= slotCount || len(owner) < 2 {
			return nil, fmt.Errorf("malformed reply to CLUSTER SLOTS: range %d to %d: %w", first, last, err)
		}
		endpoint, _ := owner[0].ToString()
		port, err := owner[1].AsInt64()
		if err != nil || endpoint == "?" {
			continue
		}
		if endpoint == "" {
			endpoint = host
		}
		addr := net.JoinHostPort(endpoint, strconv.FormatInt(port, 10))
		owners = append(owners, ownership{uint16(first), uint16(last), addr})
	}
	if len(owners) == 0 {
		return nil, errors.New("reply to CLUSTER SLOTS without an owner")
	}
	slices.SortFunc(owners, func(a, b ownership) int { return int(a.first) - int(b.first) })
	return owners, nil
}

const slotCount = 16384

// slotOf returns the slot of a key or of a channel: the CRC-16 of the text between its first braces, or of the whole
// key if that text is empty.
func slotOf(key string) uint16 {
	if _, rest, opened := strings.Cut(key, "{"); opened {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc % slotCount
}

// crcTable is the table of the CRC-16 with the polynomial 0x1021 (XMODEM).
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			if crc <<= 1; carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()
