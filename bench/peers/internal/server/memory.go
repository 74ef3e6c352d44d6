package server

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// Footprint is the memory and the expiry of all keys of a server.
type Footprint struct {
	Keys    int
	Bytes   int64         // by MEMORY USAGE, each key's name and entry included
	Longest time.Duration // until the last of them has expired
	Forever int           // keys that do not expire
}

// Used returns the bytes that the server has allocated: the keys, the tables that lead to them, and everything else it
// needs.
func (s *Server) Used(ctx context.Context) (int64, error) {
	text, err := s.info(ctx, "memory", "used_memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// Footprint inspects every key. The keys must not change during the call.
func (s *Server) Footprint(ctx context.Context) (Footprint, error) {
	var f Footprint
	for cursor := uint64(0); ; {
		page, err := s.admin.Do(ctx, s.admin.B().Scan().Cursor(cursor).Count(1000).Build()).AsScanEntry()
		if err != nil {
			return f, err
		}
		if err := s.measure(ctx, page.Elements, &f); err != nil {
			return f, err
		}
		if cursor = page.Cursor; cursor == 0 {
			return f, nil
		}
	}
}

func (s *Server) measure(ctx context.Context, keys []string, f *Footprint) error {
	commands := make(rueidis.Commands, 0, 2*len(keys))
	for _, key := range keys {
		commands = append(commands,
			s.admin.B().MemoryUsage().Key(key).Samples(0).Build(), s.admin.B().Pttl().Key(key).Build())
	}
	answers := s.admin.DoMulti(ctx, commands...)
	for i := 0; i < len(answers); i += 2 {
		bytes, err := answers[i].AsInt64()
		if err != nil {
			return err
		}
		left, err := answers[i+1].AsInt64()
		if err != nil {
			return err
		}
		f.Keys++
		f.Bytes += bytes
		if left < 0 {
			f.Forever++
		}
		f.Longest = max(f.Longest, time.Duration(left)*time.Millisecond)
	}
	return nil
}
