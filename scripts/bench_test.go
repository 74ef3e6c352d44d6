package scripts_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// The floor is what any lock in two scripts has to pay, with as many keys and arguments as ours.
const (
	floorAcquire = `redis.call('TIME') redis.call('HINCRBY', KEYS[1], 'n', 1) redis.call('PEXPIRE', KEYS[1], 30000)
return redis.call('INCR', KEYS[2])`
	floorRelease = `redis.call('HINCRBY', KEYS[1], 'n', -1) return redis.call('DEL', KEYS[1])`
)

// benchServer is a server whose own time is measured, not the client's.
type benchServer struct {
	b      *testing.B
	server *testredis.Server
	client rueidis.Client
	known  map[string]string // digests by source
}

func newBenchServer(b *testing.B) *benchServer {
	server := testredis.Start(b)
	return &benchServer{b, server, server.Client(b), map[string]string{}}
}

func (s *benchServer) eval(source string, keys, args []string) rueidis.Completed {
	if s.known[source] == "" {
		sum, err := s.client.Do(context.Background(), s.client.B().ScriptLoad().Script(source).Build()).ToString()
		require.NoError(s.b, err)
		s.known[source] = sum
	}
	return s.client.B().Evalsha().Sha1(s.known[source]).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func (s *benchServer) call(c call) rueidis.Completed {
	return s.eval(scripts.Source(c.script), c.keys, c.args)
}

func (s *benchServer) send(commands []rueidis.Completed) {
	for _, r := range s.client.DoMulti(context.Background(), commands...) {
		if err := r.Error(); err != nil {
			s.b.Fatal(err)
		}
	}
}

// cpu returns the microseconds of processor time that the server has used.
func (s *benchServer) cpu() float64 {
	sum, info := 0.0, s.server.Info("cpu")
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info[field], 64)
		require.NoError(s.b, err)
		sum += seconds * 1e6
	}
	return sum
}

// BenchmarkServerTime tells the server's processor time per operation, pipelined over one connection, and its ratio to
// the floor, which takes turns with it.
func BenchmarkServerTime(b *testing.B) {
	own := func(mode func(string) request) []call { return []call{acquire(mode("01")), release("01", 0)} }
	handOff := []call{acquire(writer("01")), acquire(writer("02")), release("01", 0), release("02", 0)}
	for _, workload := range []struct {
		name  string
		calls []call
	}{{"writer", own(writer)}, {"reader", own(reader)}, {"pair and hand-off", handOff}} {
		b.Run(workload.name, func(b *testing.B) {
			const ops = 500
			s := newBenchServer(b)
			var mine, floor float64
			for b.Loop() {
				var commands, least []rueidis.Completed
				for range ops {
					for _, c := range workload.calls {
						commands = append(commands, s.call(c))
					}
					a, r := acquire(writer("01")), release("01", 0)
					least = append(least, s.eval(floorAcquire, lockKeys("f"), a.args), s.eval(floorRelease, lockKeys("f"), r.args))
				}
				start := s.cpu()
				s.send(commands)
				middle := s.cpu()
				s.send(least)
				mine, floor = mine+middle-start, floor+s.cpu()-middle
			}
			b.ReportMetric(mine/float64(b.N)/ops, "server-us/op")
			b.ReportMetric(mine/floor, "x-floor")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkGrowth tells the server's time of one call beside many waiters and readers.
func BenchmarkGrowth(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprint("hand-off/waiters=", n), func(b *testing.B) {
			s := newBenchServer(b)
			s.client.Do(context.Background(), s.client.B().Flushall().Build())
			s.send([]rueidis.Completed{s.call(acquire(writer("0999999")))})
			s.sendAll(many(n, func(hold string) call { return acquire(writer(hold).waiting(3_600_000)) }))
			next := 0
			s.perCall(b, func() []rueidis.Completed { // the first leaves, another comes
				leaves := "0999999"
				if next > 0 {
					leaves = fmt.Sprint(1_000_000 + next - 1)
				}
				comes := fmt.Sprint(1_000_000 + n + next)
				next++
				return []rueidis.Completed{s.call(release(leaves, 0)), s.call(acquire(writer(comes).waiting(3_600_000)))}
			})
		})
	}
	for _, n := range []int{1, 100, 1_000} {
		b.Run(fmt.Sprint("reader/readers=", n), func(b *testing.B) {
			s := newBenchServer(b)
			s.sendAll(many(n, func(hold string) call { return acquire(reader(hold).lasting(3_600_000)) }))
			s.perCall(b, func() []rueidis.Completed {
				return []rueidis.Completed{s.call(acquire(reader("01"))), s.call(release("01", 0))}
			})
		})
	}
}

func (s *benchServer) sendAll(calls []call) {
	commands := make([]rueidis.Completed, len(calls))
	for i, c := range calls {
		commands[i] = s.call(c)
	}
	s.send(commands)
}

func (s *benchServer) perCall(b *testing.B, next func() []rueidis.Completed) {
	calls, start := 0, s.cpu()
	for b.Loop() {
		var commands []rueidis.Completed
		for range 100 {
			commands = append(commands, next()...)
		}
		s.send(commands)
		calls += 100
	}
	b.ReportMetric((s.cpu()-start)/float64(calls), "server-us/op")
	b.ReportMetric(0, "ns/op")
}
