package etcdguard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed74116694/fencelock/examples/recipes/etcdguard"
	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
)

// An older reader goes on after a newer one has read. Nothing was written in between, so it may read; and what a writer
// from between the two has to write stays refused.
func TestAnOlderReaderDoesNotLowerTheRegister(t *testing.T) {
	s := newStore(t)
	require.NoError(t, s.put(write(5), "first"))
	require.Equal(t, "first", expect.NoError(s.get(read(12))).In(t))
	require.Equal(t, &fencing.StaleError{Resource: s.resource, Got: 11, Seen: 12}, s.put(write(11), "stale"))

	require.Equal(t, "first", expect.NoError(s.get(read(10))).In(t))
	require.Equal(t, fencing.Registers{MaxRead: 12, MaxWrite: 5}, s.registers())
	require.Equal(t, &fencing.StaleError{Resource: s.resource, Got: 11, Seen: 12}, s.put(write(11), "stale"))
	require.Equal(t, "first", expect.NoError(s.get(read(12))).In(t))
}

// An equal token passes: a holder writes more than once, and reads what it has written.
func TestEqualTokensPass(t *testing.T) {
	for _, token := range []fencing.Token{1, 9, 10, 999, 1763712345678901, fencing.MaxToken} {
		s := newStore(t)
		require.NoError(t, s.put(write(token), "one"))
		require.NoError(t, s.put(write(token), "two"))
		require.Equal(t, "two", expect.NoError(s.get(read(token))).In(t))
		require.Equal(t, "two", expect.NoError(s.get(write(token))).In(t))
		require.NoError(t, s.derive(read(token), "three"))
		require.NoError(t, s.put(write(token), "four"), "the reader has the same token")
	}
}

// Random accesses are accepted and refused, and raise registers, as the rule says.
func TestRuleAgreesWithTheModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 10 {
		s := newStore(t)
		var past fencing.Registers
		data := ""
		for i := range 40 {
			f := write(fencing.Token(1 + rng.IntN(20)))
			next, check := strconv.Itoa(i), past.Check
			var err error
			kind := rng.IntN(4)
			switch kind {
			case 0, 1:
				f.Mode = fencing.Mode(1 + kind)
				next = data
				var got string
				if got, err = s.get(f); err == nil {
					require.Equal(t, data, got)
				}
			case 2:
				err = s.put(f, next)
			case 3:
				f.Mode, check = fencing.Mode(1+rng.IntN(2)), past.CheckDerived
				err = s.derive(f, next)
			}
			f.Resource = s.resource
			want := check(f)
			require.Equal(t, want, err, "%v kind=%d after %v", f, kind, past)
			if want == nil {
				data = next
				if kind != 3 {
					past = past.Raise(f)
				}
			}
			require.Equal(t, past, s.registers(), "%v kind=%d", f, kind)
		}
	}
}

// What etcd has accepted of many holders at once, in etcd's order, is what the rule accepts in that order. The first
// accesses meet where no register exists.
func TestConcurrentHolders(t *testing.T) {
	const holders, accesses = 8, 30
	s := newStore(t)
	type access struct {
		revision int64
		f        fencing.Fence
	}
	var mu sync.Mutex
	var accepted []access
	var group sync.WaitGroup
	for i := range holders {
		group.Go(func() {
			f := fencing.Fence{Resource: s.resource, Token: fencing.Token(1 + i), Mode: fencing.Mode(1 + i%2)}
			for n := range accesses {
				key := fmt.Sprintf("%s/%d", s.key, i)
				ops := []clientv3.Op{clientv3.OpGet(s.key)}
				if f.Mode == fencing.Write {
					ops = []clientv3.Op{clientv3.OpPut(key, strconv.Itoa(n))}
				}
				resp, err := etcdguard.Do(context.Background(), s.client, f, ops...)
				if err != nil {
					if !errors.Is(err, fencing.ErrStale) {
						t.Error(err)
					}
					return
				}
				if f.Mode == fencing.Write {
					mu.Lock()
					accepted = append(accepted, access{resp[0].GetResponsePut().GetHeader().GetRevision(), f})
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	slices.SortFunc(accepted, func(a, b access) int { return int(a.revision - b.revision) })
	newest := 0
	for i, a := range accepted {
		require.GreaterOrEqual(t, a.f.Token, accepted[max(i-1, 0)].f.Token)
		if a.f.Token == holders {
			newest++
		}
	}
	require.Equal(t, accesses, newest, "the newest is never refused")
	require.Equal(t, fencing.Token(holders), s.registers().MaxWrite)
}

func TestFencesThatAreRefusedUnsent(t *testing.T) {
	nobody := clientv3.NewKVFromKVClient(nil, nil) // it panics if it is asked
	for _, op := range []clientv3.Op{
		clientv3.OpPut("a", "x"), clientv3.OpDelete("a"), clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("a", "x")}, nil),
	} {
		f := read(7)
		f.Resource = "orders"
		_, err := etcdguard.Do(t.Context(), nobody, f, clientv3.OpGet("a"), op)
		require.ErrorIs(t, err, fencing.ErrMissing)
	}
	for f, want := range map[fencing.Fence]error{
		{Resource: "orders", Mode: fencing.Write}: fencing.ErrMissing,
		{Resource: "orders", Mode: fencing.Read}:  fencing.ErrMissing,
		{Token: 1, Mode: fencing.Write}:           fencing.ErrMalformed,
		{Resource: "orders", Token: 1}:            fencing.ErrMalformed,
	} {
		_, err := etcdguard.Do(t.Context(), nobody, f)
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, etcdguard.Derive(t.Context(), nobody, f, "a", "x"), want)
	}
}

// A register that is not what the recipe writes lets nothing pass.
func TestRegistersThatAreMalformed(t *testing.T) {
	for _, value := range []string{"5", "", "x", "99999999999999999999"} {
		s := newStore(t)
		require.NoError(t, s.put(write(5), "first"))
		expect.NoError(s.client.Put(t.Context(), "fencing/"+s.resource+"/w", value)).In(t)
		err := s.put(write(7), "second")
		if value == "" { // which is less than any token
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, fencing.ErrMalformed, value)
		require.ErrorContains(t, err, s.resource)
	}
}

// store is one key of etcd, and a resource of its own.
type store struct {
	t             *testing.T
	client        *clientv3.Client
	resource, key string
}

var stores int

func newStore(t *testing.T) *store {
	t.Helper()
	client := connect(t)
	stores++
	return &store{t: t, client: client, resource: fmt.Sprint("orders/", stores), key: fmt.Sprint("data/", stores)}
}

func (s *store) put(f fencing.Fence, value string) error {
	f.Resource = s.resource
	_, err := etcdguard.Do(s.t.Context(), s.client, f, clientv3.OpPut(s.key, value))
	return err
}

func (s *store) derive(f fencing.Fence, value string) error {
	f.Resource = s.resource
	return etcdguard.Derive(s.t.Context(), s.client, f, s.key, value)
}

// get returns "" if there is no value.
func (s *store) get(f fencing.Fence) (string, error) {
	f.Resource = s.resource
	resp, err := etcdguard.Do(s.t.Context(), s.client, f, clientv3.OpGet(s.key))
	if err != nil {
		return "", err
	}
	require.Len(s.t, resp, 1)
	for _, kv := range resp[0].GetResponseRange().GetKvs() {
		return string(kv.GetValue()), nil
	}
	return "", nil
}

// registers asks past the guard.
func (s *store) registers() (seen fencing.Registers) {
	for name, token := range map[string]*fencing.Token{"/r": &seen.MaxRead, "/w": &seen.MaxWrite} {
		resp := expect.NoError(s.client.Get(s.t.Context(), "fencing/"+s.resource+name)).In(s.t)
		for _, kv := range resp.Kvs {
			*token = expect.NoError(fencing.ParseToken(string(kv.Value))).In(s.t)
		}
	}
	return seen
}

func read(token fencing.Token) fencing.Fence { return fencing.Fence{Token: token, Mode: fencing.Read} }

func write(token fencing.Token) fencing.Fence {
	return fencing.Fence{Token: token, Mode: fencing.Write}
}
