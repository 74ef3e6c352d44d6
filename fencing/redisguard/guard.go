package redisguard

import (
	"context"
	"crypto/fips140"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/transport"
)

// ErrEvicts reports that the server may have evicted the registers of a resource: it has none, and maxmemory-policy
// lets the server evict them. Nothing was done.
var ErrEvicts = errors.New("redisguard: the server evicts registers")

// Guard does fenced accesses to the data of one Redis or Cluster. It is safe for concurrent use and has nothing to
// close; the client remains the caller's. The zero value refuses every access; create a Guard with New.
type Guard struct {
	client      rueidis.Client
	registerTTL time.Duration
	builtin     builtin
}

// Option configures a Guard.
type Option func(*Guard) error

// WithRegisterTTL lets the registers of a resource expire when they have not been used for d, at least 1 s. Without it
// they stay. A forgotten register lets the next stale token pass, so d must exceed the longest pause that a holder may
// survive. It needs the policy noeviction. The longest setting of several guards wins: see docs/fencing.md.
func WithRegisterTTL(d time.Duration) Option {
	return func(g *Guard) error {
		if d < time.Second {
			return fmt.Errorf("redisguard: register TTL %v: at least 1s is needed", d)
		}
		g.registerTTL = d
		return nil
	}
}

// errZeroGuard reports that a Guard was not made by New.
var errZeroGuard = errors.New("redisguard: the zero Guard, make it with New")

// New returns a Guard that works through client. A nil client and an option that is nil or out of its range are
// refused.
func New(client rueidis.Client, opts ...Option) (*Guard, error) {
	if client == nil {
		return nil, errors.New("redisguard: the client is nil")
	}
	g := &Guard{client: client, builtin: newBuiltin()}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("redisguard: an option is nil")
		}
		if err := opt(g); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Do runs a script under f and returns the script's reply. The reply's IsNil is true if the script returned nothing. A
// [fencing.Read] fence is accepted while its token is at least the newest write's and raises the register for reads; a
// [fencing.Write] fence is accepted while it is at least the newest read's too and raises the register for writes. The
// script must write only if f is a Write fence; Do does not check that. The keys, at least one, must have one hash tag.
//
// On refusal, nothing is done; see the package documentation for the meaning of each error. The register is raised
// before the script's body runs, so even if that fails. Once it has been raised, SCRIPT KILL does not end a body that
// loops. The body must leave the registers alone.
func (g *Guard) Do(
	ctx context.Context, f fencing.Fence, script *Script, keys, args []string,
) (rueidis.RedisMessage, error) {
	return g.run(ctx, ruleOf(f), script, keys, args, f)
}

// DoAll is [Guard.Do] under several fences, of reads and of writes, such as a transfer between two accounts: one script
// call checks all of them, runs the script and raises their registers. One refused fence refuses all of them, with an
// error that names its resource, and then no register is raised. The script must write only to data of Write fences.
//
// All keys must have one hash tag, which the data of all these resources has: "balance:{bank}:7", "balance:{bank}:8".
// Data in two slots may be on two servers, and neither could check both fences, so keys of two tags are refused. No
// fence, and two fences of one resource, are a [*fencing.MalformedError]; nothing is sent.
func (g *Guard) DoAll(
	ctx context.Context, fences []fencing.Fence, script *Script, keys, args []string,
) (rueidis.RedisMessage, error) {
	if err := refuseTogether(fences); err != nil {
		return rueidis.RedisMessage{}, err
	}
	var rules strings.Builder
	for _, f := range fences {
		rules.WriteString(ruleOf(f))
	}
	return g.run(ctx, rules.String(), script, keys, args, fences...)
}

// refuseTogether returns an error for fences that make no access together.
func refuseTogether(fences []fencing.Fence) error {
	if len(fences) == 0 {
		return &fencing.MalformedError{What: "fences", Reason: "at least one is needed"}
	}
	seen := make(map[string]bool, len(fences))
	for _, f := range fences {
		if seen[f.Resource] {
			return &fencing.MalformedError{What: "fences", Input: clip(f.Resource), Reason: "two fences of one resource"}
		}
		seen[f.Resource] = true
	}
	return nil
}

// Claim raises f's register in the slot of key and does nothing else, so that from here on everything older is refused
// there. A holder claims before it reads by other means than this package, or before it writes to another store that is
// cached here.
func (g *Guard) Claim(ctx context.Context, f fencing.Fence, key string) error {
	_, err := g.Do(ctx, f, g.builtin.claim, []string{key}, nil)
	return err
}

// Seen returns the current registers of the resource in the slot of key.
func (g *Guard) Seen(ctx context.Context, resource, key string) (fencing.Registers, error) {
	if g.client == nil {
		return fencing.Registers{}, errZeroGuard
	}
	tag, err := hashTag(key)
	if err != nil {
		return fencing.Registers{}, err
	}
	fields, err := g.client.Do(ctx, g.client.B().Hmget().Key(registerKey(resource, tag)).Field("r", "w").Build()).ToArray()
	transport.LeaveReplica(g.client, err)
	if err != nil {
		return fencing.Registers{}, failed(key, errs.WithCause(ctx, err))
	}
	var seen fencing.Registers
	for i, token := range []*fencing.Token{&seen.MaxRead, &seen.MaxWrite} {
		if fields[i].IsNil() {
			continue
		}
		if *token, err = tokenOf(fields[i]); err != nil {
			return fencing.Registers{}, failed(key, err)
		}
	}
	return seen, nil
}

// A rule is one letter: how the script checks a fence, and which register it raises.
const (
	ruleRead    = "r"
	ruleWrite   = "w"
	ruleDerived = "d"
)

func ruleOf(f fencing.Fence) string {
	if f.Mode == fencing.Write {
		return ruleWrite
	}
	return ruleRead
}

// run runs a script behind the check of fences, each by the rule of its place in rules.
func (g *Guard) run(
	ctx context.Context, rules string, script *Script, keys, args []string, fences ...fencing.Fence,
) (rueidis.RedisMessage, error) {
	var none rueidis.RedisMessage
	switch {
	case g.client == nil:
		return none, errZeroGuard
	case script.isZero():
		return none, errZeroScript
	}
	for _, f := range fences {
		if err := f.Validate(); err != nil {
			return none, err
		}
	}
	tag, err := commonTag(keys)
	if err != nil {
		return none, err
	}
	// Into new slices: appending in place could write into the caller's.
	allKeys := append(make([]string, 0, len(keys)+len(fences)), keys...)
	allArgs := append(make([]string, 0, len(args)+len(fences)+2), args...)
	for _, f := range fences {
		allKeys = append(allKeys, registerKey(f.Resource, tag))
		allArgs = append(allArgs, f.Token.String())
	}
	allArgs = append(allArgs, rules, strconv.FormatInt(g.registerTTL.Milliseconds(), 10))

	reply, err := g.exec(ctx, script, allKeys, allArgs)
	if err != nil {
		return none, failed(keys[0], errs.WithCause(ctx, err))
	}
	return g.verdict(fences, keys[0], reply)
}

// migrating is the answer of a Cluster while a slot moves and its keys are at two servers, or new: the script did not
// run. It is compared as a whole, as a body may have written before it returns an error of this kind.
const migrating = "TRYAGAIN Multiple keys request during rehashing of slot"

// exec runs a script, and sends it again until the slot of its keys has moved or ctx has ended.
func (g *Guard) exec(ctx context.Context, script *Script, keys, args []string) ([]rueidis.RedisMessage, error) {
	const longest = 320 * time.Millisecond
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, longest) {
		reply, err := script.lua.Exec(ctx, g.client, keys, args).ToArray()
		transport.LeaveReplica(g.client, err)
		if refusal, is := rueidis.IsRedisErr(err); !is || refusal.Error() != migrating {
			return reply, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errs.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// verdict parses {1, reply}, {0, token, number of the fence} and {2, policy, number of the fence}.
func (g *Guard) verdict(
	fences []fencing.Fence, key string, reply []rueidis.RedisMessage,
) (rueidis.RedisMessage, error) {
	var none rueidis.RedisMessage
	if len(reply) < 2 {
		return none, failed(key, fmt.Errorf("a reply of %d elements", len(reply)))
	}
	kind, err := reply[0].AsInt64()
	if err != nil {
		return none, failed(key, err)
	}
	if kind == 1 {
		return reply[1], nil
	}
	f, err := refused(fences, reply)
	if err != nil {
		return none, failed(key, err)
	}
	if kind == 2 {
		policy, _ := reply[1].ToString()
		cause := fmt.Errorf("%w: %q has none, and maxmemory-policy is %s", ErrEvicts, f.Resource, policy)
		if g.registerTTL > 0 && strings.HasPrefix(policy, "volatile-") {
			cause = fmt.Errorf("%w, which evicts the registers of WithRegisterTTL and none without", cause)
		}
		return none, failed(key, cause)
	}
	seen, err := tokenOf(reply[1])
	if err != nil {
		return none, failed(key, err)
	}
	return none, &fencing.StaleError{Resource: f.Resource, Got: f.Token, Seen: seen}
}

// refused returns the fence that a reply names by its number, which is the last element.
func refused(fences []fencing.Fence, reply []rueidis.RedisMessage) (fencing.Fence, error) {
	number, err := reply[len(reply)-1].AsInt64()
	if err != nil {
		return fencing.Fence{}, err
	}
	if number < 1 || number > int64(len(fences)) {
		return fencing.Fence{}, fmt.Errorf("a refusal of fence %d of %d", number, len(fences))
	}
	return fences[number-1], nil
}

func tokenOf(m rueidis.RedisMessage) (fencing.Token, error) {
	text, err := m.ToString()
	if err != nil {
		return 0, err
	}
	return fencing.ParseToken(text)
}

func failed(key string, err error) error {
	return fmt.Errorf("redisguard: key %q: %w", key, err)
}

//go:embed guard.lua
var guardScript string

// Script is an access in Lua that runs behind the check. [Guard.Do] refuses the zero value and nil; create a Script
// with NewScript.
type Script struct{ lua *rueidis.Lua }

var errZeroScript = errors.New("redisguard: the script is nil or zero, make it with NewScript")

func (s *Script) isZero() bool { return s == nil || s.lua == nil }

// NewScript returns a Script with a body as for EVAL, which may return a reply, with the caller's KEYS and ARGV. Create
// it once and use it many times: it is sent as EVALSHA, and in full only if the server does not know it. It is never
// repeated automatically after a failed connection.
func NewScript(body string) *Script {
	return behind(guardScript, "", body)
}

// NewScriptIf is NewScript with a condition in Lua, which sees the same KEYS and ARGV. It runs when the fences have
// passed, before their registers rise. If it returns a reply, that is the reply of the call: no register rises, and the
// body does not run. It must not write.
func NewScriptIf(condition, body string) *Script {
	return behind(guardScript, condition, body)
}

// lean is NewScript for one fence and a body that needs no memory: a full server runs it for the next holder too.
func lean(body string) *Script {
	return behind(strings.Replace(guardScript, "lean = false", "lean = true", 1), "", body)
}

// behind computes the digest by which servers name a script also where GODEBUG=fips140=only forbids SHA-1: it
// identifies the script and protects nothing.
func behind(guard, condition, body string) *Script {
	text := strings.NewReplacer("-- CONDITION", condition, "-- ACCESS", body).Replace(guard)
	var lua *rueidis.Lua
	fips140.WithoutEnforcement(func() { lua = rueidis.NewLuaScript(text) })
	return &Script{lua: lua}
}

// builtin are the scripts of a Guard's own methods.
type builtin struct{ claim, get, set, hset, del *Script }

func newBuiltin() builtin {
	return builtin{
		claim: lean(``),
		get:   lean(`return redis.call('GET', KEYS[1])`),
		set: NewScript(`
if ARGV[2] == '0' then return redis.call('SET', KEYS[1], ARGV[1]) end
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])`),
		// In portions, because Lua's stack ends at some 8000 arguments.
		hset: NewScript(`
for i = 1, #ARGV, 1000 do
  redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end`),
		del: lean(`return redis.call('DEL', KEYS[1])`),
	}
}
