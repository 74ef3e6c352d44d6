package objectguard_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/objectguard"
)

// A read, a computation and a write in one step.
func ExampleGuard_Update() {
	guard := objectguard.New(newMemory()) // or s3bucket.New(client, "counters")
	add := func(f fencing.Fence, n int) error {
		return guard.Update(context.Background(), f, "visits", func(data []byte) ([]byte, error) {
			if data == nil { // there is no object yet
				data = []byte("0")
			}
			total, err := strconv.Atoi(string(data))
			if err != nil {
				return nil, err
			}
			return []byte(strconv.Itoa(total + n)), nil
		})
	}
	fmt.Println(add(write(34), 5))
	fmt.Println(add(write(34), 6)) // a holder writes more than once
	fmt.Println(add(write(33), 7)) // was paused
	// Output:
	// <nil>
	// <nil>
	// fencing: stale token: "orders/42" has seen 34, got 33
}

// Reading fences off older writers, even where there is nothing to read.
func ExampleGuard_Read() {
	guard := objectguard.New(newMemory())
	ctx := context.Background()
	_, err := guard.Read(ctx, read(12), "42.json")
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	fmt.Println(guard.Write(ctx, write(11), "42.json", []byte("late")))
	// Output:
	// true
	// fencing: stale token: "orders/42" has seen 12, got 11
}

// Large data is stored in objects of its own, written once and never again; the guarded
// object says which of them is valid. What a stale holder has uploaded is litter.
func Example_largeData() {
	bucket := newMemory()
	guard := objectguard.New(bucket)
	upload := func(key, data string) { bucket.objects[key] = []byte(data) } // a plain PUT

	ctx := context.Background()
	publish := func(f fencing.Fence, number int, video string) error {
		key := fmt.Sprintf("videos/42/%s-%d", f.Token.Padded(), number) // no other upload has it
		upload(key, video)
		return guard.Write(ctx, f, "videos/42/current", []byte(key))
	}
	fmt.Println(publish(write(34), 1, strings.Repeat("new", 1<<20)))
	fmt.Println(publish(write(33), 1, strings.Repeat("old", 1<<20)))
	current, err := guard.Read(ctx, read(35), "videos/42/current")
	fmt.Println(string(current), err)
	// Output:
	// <nil>
	// fencing: stale token: "orders/42" has seen 34, got 33
	// videos/42/00000000000000000034-1 <nil>
}

// Whoever holds no lock takes the data off without raising anything.
func ExampleOpen() {
	bucket := newMemory()
	must(objectguard.New(bucket).Write(context.Background(), write(7), "42.json", []byte(`{"state":"shipped"}`)))

	data, seen, err := objectguard.Open(bucket.objects["42.json"])
	fmt.Println(string(data), seen.MaxWrite, err)
	// Output: {"state":"shipped"} 7 <nil>
}

// An object from before is taken over once, and keeps what the store has beside its
// content.
func ExampleGuard_Adopt() {
	bucket := newMemory()
	bucket.objects["42.json"] = []byte("packed") // a plain PUT, some time ago
	guard := objectguard.New(bucket)
	ctx := context.Background()

	fmt.Println(errors.Is(guard.Write(ctx, write(7), "42.json", nil), objectguard.ErrUnguarded))
	must(guard.Adopt(ctx, write(7), "42.json"))
	must(guard.Write(ctx, write(7), "42.json", []byte("shipped")))
	data, err := guard.Read(ctx, read(8), "42.json")
	fmt.Println(string(data), err)
	// Output:
	// true
	// shipped <nil>
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// memory is a bucket whose generations are S3's: digests of the content.
type memory struct {
	mu         sync.Mutex
	objects    map[string][]byte
	attributes map[string]map[string]string
	gets       int
	puts       int // those that stored
}

func newMemory() *memory {
	return &memory{objects: map[string][]byte{}, attributes: map[string]map[string]string{}}
}

func generationOf(content []byte) string {
	digest := md5.Sum(content)
	return hex.EncodeToString(digest[:])
}

func (m *memory) Get(ctx context.Context, key string) (objectguard.Object, error) {
	if err := ctx.Err(); err != nil {
		return objectguard.Object{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets++
	content, ok := m.objects[key]
	if !ok {
		return objectguard.Object{}, nil
	}
	return objectguard.Object{Content: content, Generation: generationOf(content), Attributes: m.attributes[key]}, nil
}

func (m *memory) PutIf(ctx context.Context, key string, o objectguard.Object) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := ""
	if old, ok := m.objects[key]; ok {
		now = generationOf(old)
	}
	if now != o.Generation {
		return objectguard.ErrConflict
	}
	m.puts++
	m.objects[key] = append([]byte(nil), o.Content...)
	m.attributes[key] = o.Attributes
	return nil
}

const lock = "orders/42"

func read(token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: lock, Token: token, Mode: fencing.Read}
}

func write(token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: lock, Token: token, Mode: fencing.Write}
}
