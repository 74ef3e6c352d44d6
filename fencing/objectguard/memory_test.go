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
	mu      sync.Mutex
	objects map[string][]byte
	gets    int
	puts    int // those that stored
}

func newMemory() *memory { return &memory{objects: map[string][]byte{}} }

func generationOf(content []byte) string {
	digest := md5.Sum(content)
	return hex.EncodeToString(digest[:])
}

func (m *memory) Get(ctx context.Context, key string) ([]byte, string, error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets++
	content, ok := m.objects[key]
	if !ok {
		return nil, "", nil
	}
	return content, generationOf(content), nil
}

func (m *memory) PutIf(ctx context.Context, key string, content []byte, generation string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := ""
	if old, ok := m.objects[key]; ok {
		now = generationOf(old)
	}
	if now != generation {
		return objectguard.ErrConflict
	}
	m.puts++
	m.objects[key] = append([]byte(nil), content...)
	return nil
}

// hooked does something before or in the place of a bucket's writes.
type hooked struct {
	*memory
	put func(ctx context.Context, key string, content []byte, generation string) error
}

func (h hooked) PutIf(ctx context.Context, key string, content []byte, generation string) error {
	return h.put(ctx, key, content, generation)
}
