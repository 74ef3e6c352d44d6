package objectguard_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/objectguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
)

func TestAccessesAreCheckedAndDone(t *testing.T) {
	ctx, bucket := t.Context(), newMemory()
	guard := objectguard.New(bucket)

	_, err := guard.Read(ctx, write(5), "a")
	require.ErrorIs(t, err, fs.ErrNotExist)
	err = guard.Write(ctx, write(4), "a", []byte("x"))
	require.ErrorIs(t, err, fencing.ErrStale, "the register was raised all the same")
	require.NoError(t, guard.Write(ctx, write(5), "a", []byte("one")))
	require.NoError(t, guard.Update(ctx, write(5), "a", func(old []byte) ([]byte, error) {
		return append(old[:len(old):len(old)], " two"...), nil
	}))
	require.Equal(t, "one two", string(expect.NoError(guard.Read(ctx, read(6), "a")).In(t)))
	require.Equal(t, &fencing.StaleError{Resource: lock, Got: 5, Seen: 6}, guard.Write(ctx, write(5), "a", nil))
	require.Equal(t, fencing.Registers{MaxWrite: 5, MaxRead: 6}, expect.NoError(guard.Seen(ctx, "a")).In(t))

	require.NoError(t, guard.Delete(ctx, write(7), "a"))
	_, err = guard.Read(ctx, read(8), "a")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, guard.Write(ctx, write(6), "a", []byte("x")), fencing.ErrStale, "after the deletion")
	require.NoError(t, guard.Update(ctx, write(9), "a", func(old []byte) ([]byte, error) {
		require.Nil(t, old)
		return []byte{}, nil
	}))
	require.Empty(t, expect.NoError(guard.Read(ctx, read(9), "a")).In(t, "an empty object exists"))
}

// methods are what each method says of a fence.
func methods(t *testing.T, guard *objectguard.Guard, f fencing.Fence) map[string]error {
	ctx := t.Context()
	_, got := guard.Read(ctx, f, "a")
	return map[string]error{
		"Read": got, "Claim": guard.Claim(ctx, f, "a"), "Derive": guard.Derive(ctx, f, "a", nil),
		"Write":  guard.Write(ctx, f, "a", nil),
		"Update": guard.Update(ctx, f, "a", func(data []byte) ([]byte, error) { return data, nil }),
		"Delete": guard.Delete(ctx, f, "a"), "Adopt": guard.Adopt(ctx, f, "a"),
	}
}

func TestAccessesThatAreRefusedUnsent(t *testing.T) {
	bucket := newMemory()
	guard := objectguard.New(bucket)
	for name, err := range methods(t, guard, write(0)) {
		require.ErrorIs(t, err, fencing.ErrMissing, name)
	}
	for name, err := range methods(t, guard, fencing.Fence{Token: 1, Mode: fencing.Read}) {
		require.ErrorIs(t, err, fencing.ErrMalformed, name)
	}
	require.ErrorContains(t, guard.Update(t.Context(), write(7), "a", nil), "change is nil")
	require.Zero(t, bucket.gets)
	readers := methods(t, guard, read(1))
	for _, name := range []string{"Write", "Update", "Delete", "Adopt"} {
		require.ErrorIs(t, readers[name], fencing.ErrMissing, "a reader does not write: %s", name)
	}
	for _, guard := range []*objectguard.Guard{new(objectguard.Guard), objectguard.New(nil)} {
		for name, err := range methods(t, guard, write(7)) {
			require.ErrorContains(t, err, "no bucket", name)
		}
		_, err := guard.Seen(t.Context(), "a")
		require.ErrorContains(t, err, "no bucket")
	}
}

func TestRaisedRegistersCostNoWrite(t *testing.T) {
	bucket := newMemory()
	guard := objectguard.New(bucket)
	require.NoError(t, guard.Write(t.Context(), write(1), "a", []byte("x")))
	require.NoError(t, guard.Claim(t.Context(), read(3), "a"))
	bucket.gets, bucket.puts = 0, 0
	for _, f := range []fencing.Fence{read(3), read(2), read(1)} {
		expect.NoError(guard.Read(t.Context(), f, "a")).In(t)
	}
	require.Equal(t, 3, bucket.gets)
	require.Zero(t, bucket.puts)
}

func TestErrorOfAChangeStoresNothing(t *testing.T) {
	bucket := newMemory()
	guard := objectguard.New(bucket)
	boom := errors.New("boom")
	err := guard.Update(t.Context(), write(1), "a", func([]byte) ([]byte, error) { return nil, boom })
	require.Equal(t, boom, err)
	require.Empty(t, bucket.objects)
}

// A newer holder writes the same content again, which the digest of the data alone would not tell from the stale one's.
func TestSameContentIsAnotherGeneration(t *testing.T) {
	bucket := newMemory()
	guard := objectguard.New(bucket)
	require.NoError(t, guard.Write(t.Context(), write(5), "a", []byte("same")))

	overtaken := false
	stale := objectguard.New(hooked{bucket, func(ctx context.Context, key string, o objectguard.Object) error {
		if !overtaken { // between the check and the write of the stale holder
			overtaken = true
			require.NoError(t, guard.Write(ctx, write(9), key, []byte("other")))
			require.NoError(t, guard.Write(ctx, write(9), key, []byte("same")))
		}
		return bucket.PutIf(ctx, key, o)
	}})
	err := stale.Write(t.Context(), write(6), "a", []byte("stale"))
	require.Equal(t, &fencing.StaleError{Resource: lock, Got: 6, Seen: 9}, err)

	before := bucket.objects["a"]
	require.NoError(t, guard.Write(t.Context(), write(9), "a", []byte("same")))
	require.NotEqual(t, before, bucket.objects["a"], "the same write by the same holder")
}

func TestObjectOfAnotherLock(t *testing.T) {
	guard := objectguard.New(newMemory())
	require.NoError(t, guard.Write(t.Context(), write(5), "a", nil))
	other := fencing.Fence{Resource: "orders/43", Token: 9, Mode: fencing.Write}
	require.ErrorIs(t, guard.Write(t.Context(), other, "a", nil), objectguard.ErrLock)
	require.ErrorIs(t, guard.Derive(t.Context(), other, "a", nil), objectguard.ErrLock)
	require.NoError(t, guard.Write(t.Context(), other, "b", nil))
}

// reads reads "a", and fails the test if there is anything else than want; nil is no object.
func reads(t *testing.T, guard *objectguard.Guard, f fencing.Fence, want []byte) error {
	got, err := guard.Read(t.Context(), f, "a")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		require.Nil(t, want)
		return nil
	case err == nil:
		require.Equal(t, want, got)
	}
	return err
}

func TestRuleAgreesWithTheModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ctx := t.Context()
	for range 200 {
		var past fencing.Registers
		var data []byte // nil: no object
		guard := objectguard.New(newMemory())
		for i := range 60 {
			f := write(fencing.Token(1 + rng.IntN(40)))
			next := []byte(strconv.Itoa(i))
			var err error
			kind := rng.IntN(5)
			switch kind {
			case 0, 1:
				f.Mode = fencing.Mode(1 + kind)
				err = reads(t, guard, f, data)
			case 2:
				err = guard.Write(ctx, f, "a", next)
			case 3:
				next = nil
				err = guard.Delete(ctx, f, "a")
			case 4:
				f.Mode = fencing.Mode(1 + rng.IntN(2))
				err = guard.Derive(ctx, f, "a", next)
			}
			check := past.Check
			if kind == 4 {
				check = past.CheckDerived
			}
			want := check(f)
			require.Equal(t, want, err, "%v kind=%d after %v", f, kind, past)
			if want != nil {
				continue
			}
			if kind != 4 {
				past = past.Raise(f)
			}
			if kind >= 2 {
				data = next
			}
		}
	}
}

// Holders that were overtaken count on beside the one that holds the lock: not one of their counts is stored.
func TestConcurrentCountsAreExact(t *testing.T) {
	const holders, counts = 8, 200
	bucket := newMemory()
	guard := objectguard.New(bucket)
	var accepted [holders]int
	var group sync.WaitGroup
	for i := range holders {
		group.Go(func() {
			f := write(fencing.Token(i + 1))
			for range counts {
				err := guard.Update(context.Background(), f, "a", func(old []byte) ([]byte, error) {
					n, _ := strconv.Atoi(string(old)) // 0 at first
					return []byte(strconv.Itoa(n + 1)), nil
				})
				if errors.Is(err, fencing.ErrStale) || errors.Is(err, objectguard.ErrUnknown) && i < holders-1 {
					return // unknown: more have overtaken it than an object remembers
				}
				if err != nil {
					t.Error(err)
				}
				accepted[i]++
			}
		})
	}
	group.Wait()
	total := 0
	for _, n := range accepted {
		total += n
	}
	require.Equal(t, strconv.Itoa(total), string(expect.NoError(guard.Read(t.Context(), read(holders), "a")).In(t)))
	require.Equal(t, counts, accepted[holders-1], "the newest is never refused")
}

func TestObjectsThatNobodyGuards(t *testing.T) {
	good := `{"fencing":1,"lock":"orders/42","max_write":"1","max_read":"0","id":"X"}`
	require.Contains(t, openError(good+"\n"), "<nil>", "or the others are refused for another reason")
	for _, content := range []string{
		"", "\n", "plain text\n", good, "{}\n", "[]\n", "null\n", good + " {}\n", " \n" + good,
		strings.Replace(good, `"fencing":1`, `"fencing":2`, 1) + "\n",
		strings.Replace(good, `"fencing":1,`, ``, 1) + "\n",
		strings.Replace(good, `"id":"X"`, `"id":""`, 1) + "\n",
		strings.Replace(good, `"max_write":"1"`, `"max_write":1`, 1) + "\n",
		strings.Replace(good, `"max_write":"1"`, `"max_write":"-1"`, 1) + "\n",
		strings.Replace(good, `"max_write":"1"`, `"max_write":"9007199254740992"`, 1) + "\n",
		strings.Replace(good, `"max_read"`, `"max_raed"`, 1) + "\n",
		strings.Replace(good, `orders/42`, ``, 1) + "\n",
		strings.Replace(good, `orders/42`, strings.Repeat("x", 513), 1) + "\n",
	} {
		bucket := newMemory()
		bucket.objects["a"] = []byte(content)
		guard := objectguard.New(bucket)
		require.ErrorIs(t, guard.Write(t.Context(), write(9), "a", nil), objectguard.ErrUnguarded, "%.90q", content)
		_, err := guard.Read(t.Context(), read(9), "a")
		require.ErrorIs(t, err, objectguard.ErrUnguarded)
		_, err = guard.Seen(t.Context(), "a")
		require.ErrorIs(t, err, objectguard.ErrUnguarded)
		require.Equal(t, content, string(bucket.objects["a"]))
	}
}

func openError(content string) string {
	_, _, err := objectguard.Open([]byte(content))
	return fmt.Sprint(err)
}

// The longest name there can be, in the form that is longest in JSON, fits into a header, whose length is limited.
func TestLongestHeader(t *testing.T) {
	bucket := newMemory()
	guard := objectguard.New(bucket)
	f := fencing.Fence{Resource: strings.Repeat("\x00", fencing.MaxResource), Token: fencing.MaxToken, Mode: fencing.Write}
	require.NoError(t, guard.Write(t.Context(), f, "a", []byte("x")))
	require.Equal(t, "x", string(expect.NoError(guard.Read(t.Context(), f, "a")).In(t)))

	line, _, _ := strings.Cut(string(bucket.objects["a"]), "\n")
	longest := "{" + strings.Repeat(" ", 4096-len(line)) + line[1:]
	require.Equal(t, "<nil>", openError(longest+"\n"))
	require.Contains(t, openError("{ "+longest[1:]+"\n"), "4096")
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"fencing":1,"lock":"orders/42","max_write":"1","max_read":"0","id":"X"}` + "\ndata"))
	f.Add([]byte(`{"fencing":1,"lock":"\u0000","max_write":"9007199254740991","max_read":"0",` +
		`"id":"X","deleted":true}` + "\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		data, seen, err := objectguard.Open(content)
		if err != nil {
			require.ErrorIs(t, err, objectguard.ErrUnguarded)
			require.Nil(t, data)
			return
		}
		require.LessOrEqual(t, max(seen.MaxRead, seen.MaxWrite), fencing.MaxToken)
		require.True(t, strings.HasSuffix(string(content), "\n"+string(data)))
	})
}

// putFunc does something before or in the place of a bucket's writes.
type putFunc func(ctx context.Context, key string, o objectguard.Object) error

type hooked struct {
	*memory
	put putFunc
}

func (h hooked) PutIf(ctx context.Context, key string, o objectguard.Object) error {
	return h.put(ctx, key, o)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAdopt(t *testing.T) {
	ctx, bucket := t.Context(), newMemory()
	bucket.objects["a"] = []byte("no header\nas it was")
	bucket.attributes["a"] = map[string]string{"Content-Type": "text/plain"}
	guard := objectguard.New(bucket)
	require.ErrorIs(t, guard.Write(ctx, write(5), "a", nil), objectguard.ErrUnguarded)
	require.ErrorIs(t, guard.Adopt(ctx, read(5), "a"), fencing.ErrMissing, "a reader writes nothing")

	require.NoError(t, guard.Adopt(ctx, write(5), "a"))
	require.Equal(t, "no header\nas it was", string(expect.NoError(guard.Read(ctx, write(5), "a")).In(t)))
	require.ErrorIs(t, guard.Adopt(ctx, write(4), "a"), fencing.ErrStale)

	puts := bucket.puts
	require.NoError(t, guard.Adopt(ctx, write(5), "a"), "again")
	require.Equal(t, puts, bucket.puts)
	require.NoError(t, guard.Adopt(ctx, write(6), "a"), "by the next holder: claimed")
	require.ErrorIs(t, guard.Write(ctx, write(5), "a", nil), fencing.ErrStale)
	other := fencing.Fence{Resource: "orders/43", Token: 9, Mode: fencing.Write}
	require.ErrorIs(t, guard.Adopt(ctx, other, "a"), objectguard.ErrLock)

	require.NoError(t, guard.Adopt(ctx, write(5), "none"))
	_, err := guard.Read(ctx, write(5), "none")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, guard.Write(ctx, write(4), "none", nil), fencing.ErrStale)
}

// A plain write comes in between: what is adopted is what is there, or nothing would be left of it.
func TestAdoptLosesNoWrite(t *testing.T) {
	bucket := newMemory()
	bucket.objects["a"] = []byte("before")
	overtaken := false
	guard := objectguard.New(hooked{bucket, func(ctx context.Context, key string, o objectguard.Object) error {
		if !overtaken {
			overtaken = true
			bucket.objects[key] = []byte("between")
		}
		return bucket.PutIf(ctx, key, o)
	}})
	require.NoError(t, guard.Adopt(t.Context(), write(5), "a"))
	require.Equal(t, "between", string(expect.NoError(guard.Read(t.Context(), write(5), "a")).In(t)))
}

// Every kind of write leaves the attributes as they were.
func TestAttributesAreKept(t *testing.T) {
	ctx, bucket := t.Context(), newMemory()
	kept := map[string]string{"Content-Type": "application/json", "owner": "ann"}
	bucket.objects["a"], bucket.attributes["a"] = []byte("{}"), kept
	guard := objectguard.New(bucket)
	for i, access := range []func() error{
		func() error { return guard.Adopt(ctx, write(1), "a") },
		func() error { return guard.Claim(ctx, read(2), "a") },
		func() error { return guard.Write(ctx, write(3), "a", []byte("x")) },
		func() error { return guard.Derive(ctx, read(3), "a", []byte("y")) },
		func() error { return guard.Delete(ctx, write(4), "a") },
		func() error { return guard.Write(ctx, write(4), "a", []byte("z")) },
	} {
		require.NoError(t, access())
		require.Equal(t, i+1, bucket.puts)
		require.Equal(t, kept, bucket.attributes["a"])
	}
}
