package scripts_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

var seed = flag.Uint64("seed", 0, "the only seed for the random sequences; 0 draws new ones")

// Random requests of a few processes, with time that goes by between them, are answered as the model says, and leave
// what it says. Every request may come twice.
func TestRandomSequencesKeepToTheModel(t *testing.T) {
	const runs, steps = 12, 150
	for i := range uint64(runs) {
		s := *seed
		if s == 0 {
			s = rand.Uint64()
		}
		t.Run(fmt.Sprint("seed=", s), func(t *testing.T) {
			inFakeTime(t, func(b *bed) { playRandomly(b, rand.New(rand.NewPCG(s, 0)), steps) })
		})
		if *seed != 0 && i == 0 {
			return
		}
	}
}

// player holds what a random sequence has to go by.
type player struct {
	b     *bed
	r     *rand.Rand
	m     *model
	holds []string // ids that were asked for
	last  call
	log   []string
}

func playRandomly(b *bed, r *rand.Rand, steps int) {
	p := &player{b: b, r: r, m: newModel()}
	defer func() {
		if b.t.Failed() {
			b.t.Logf("replay with -seed; the last steps:\n%s", strings.Join(p.log[max(0, len(p.log)-30):], "\n"))
		}
	}()
	for range steps {
		if r.IntN(3) == 0 {
			b.pass(time.Duration(r.Int64N(int64(claim) * int64(time.Millisecond))))
		}
		p.step()
		if r.IntN(4) == 0 {
			p.play(p.last)
		}
		p.m.check(b, b.run(call{scripts.Inspect, lockKeys("n"), nil}))
	}
	if r.IntN(2) == 0 { // all give back what they have, or all have crashed
		for _, id := range p.holds {
			p.play(release(id, 0))
		}
	}
	b.pass(2 * ttl * time.Millisecond)
	for key := range b.dump() {
		require.Equal(b.t, lockKeys("n")[tokenKey], key, "left behind")
	}
}

func (p *player) pick() string {
	if len(p.holds) == 0 {
		return "00"
	}
	return p.holds[max(0, len(p.holds)-1-p.r.IntN(8))]
}

func (p *player) step() {
	owner := string(rune('A' + p.r.IntN(4)))
	mode := []string{"r", "r", "w"}[p.r.IntN(3)]
	fresh := fmt.Sprintf("%03d", len(p.holds))
	switch p.r.IntN(12) {
	case 0, 1, 2:
		p.holds = append(p.holds, fresh)
		p.play(acquire(fresh, owner, mode, ttl, claim, []string{"a", "a", "0"}[p.r.IntN(3)]))
	case 3:
		p.holds = append(p.holds, fresh)
		p.play(join(fresh, owner, mode, ttl, claim))
	case 4, 5:
		p.play(renew(p.pick(), ttl))
	case 6, 7:
		p.play(refresh(p.pick(), claim))
	case 8:
		p.play(releaseAll(p.pick(), ttl))
	default:
		p.play(release(p.pick(), []int{0, 0, 0, ttl}[p.r.IntN(4)]))
	}
}

// play sends a request and compares its answer with the model's.
func (p *player) play(c call) {
	p.b.t.Helper()
	p.last = c
	before := p.m.token
	reply := p.b.run(c)
	a := c.args[2:]
	var us, status, token, wantStatus, wantToken int64
	switch c.script {
	case scripts.Refresh:
		us, status, token = reply[0].(int64), reply[2].(int64), reply[3].(int64)
	case scripts.Release:
		us, status = reply[1].(int64), reply[0].(int64)
	default:
		us, status, token = reply[3].(int64), reply[0].(int64), reply[1].(int64)
	}
	p.m.advance(us)
	switch c.script {
	case scripts.Acquire:
		wantStatus, wantToken = p.m.acquire(a[0], a[1], a[2], a[6], us)
	case scripts.Join:
		wantStatus, wantToken = p.m.join(a[0], a[1], a[2])
	case scripts.Renew:
		wantStatus, wantToken = p.m.renew(a[0])
	case scripts.Refresh:
		wantStatus, wantToken = p.m.refresh(a[0])
	case scripts.Release:
		tombstone, err := strconv.ParseInt(a[1], 10, 64)
		require.NoError(p.b.t, err)
		wantStatus = p.m.release(a[0], tombstone, a[2] == "1", us)
	}
	p.log = append(p.log, fmt.Sprintf("%d %s %q -> %v, want %d %d", us, c.script, a, reply, wantStatus, wantToken))
	require.Equal(p.b.t, []int64{wantStatus, wantToken}, []int64{status, token}, p.log[len(p.log)-1])
	require.GreaterOrEqual(p.b.t, p.m.token, before, "tokens go forward")
}
