package fencing_test

import (
	"context"
	"testing"

	"github.com/seed74116694/fencelock/fencing"
)

// What an in-memory check costs beside the access: a write, a read beside other
// readers, and a refusal.
func BenchmarkWatermark(b *testing.B) {
	ctx := context.Background()
	b.Run("write", func(b *testing.B) {
		var w fencing.Watermark
		b.ReportAllocs()
		for b.Loop() {
			if err := w.Do(ctx, write("a", 17), nothing); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read/parallel", func(b *testing.B) {
		var w fencing.Watermark
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := w.Do(ctx, read("a", 17), nothing); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	b.Run("stale", func(b *testing.B) {
		var w fencing.Watermark
		if err := w.Claim(write("a", 17)); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := w.Do(ctx, write("a", 16), nothing); err == nil {
				b.Fatal("a stale write passed")
			}
		}
	})
}
