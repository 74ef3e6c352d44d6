package fencing_test

import (
	"context"
	"testing"

	"github.com/seed74116694/fencelock/fencing"
)

// What an in-memory check costs beside the access.
func BenchmarkWatermark(b *testing.B) {
	ctx := context.Background()
	var w fencing.Watermark
	for name, do := range map[string]func() error{
		"write": func() error { return w.Do(ctx, write("a", 17), nothing) },
		"read":  func() error { return w.Do(ctx, read("a", 17), nothing) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := do(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
