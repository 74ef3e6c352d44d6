package objectguard_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"sync"

	"github.com/seed74116694/fencelock/fencing/objectguard"
)

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

// putFunc does something before or in the place of a bucket's writes.
type putFunc func(ctx context.Context, key string, o objectguard.Object) error

type hooked struct {
	*memory
	put putFunc
}

func (h hooked) PutIf(ctx context.Context, key string, o objectguard.Object) error {
	return h.put(ctx, key, o)
}
