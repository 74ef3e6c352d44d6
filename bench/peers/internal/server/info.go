package server

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// info returns one field of a section of INFO.
func (s *Server) info(ctx context.Context, section, field string) (string, error) {
	text, err := s.admin.Do(ctx, s.admin.B().Info().Section(section).Build()).ToString()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("INFO %s has no field %s", section, field)
}

// Version returns the kind of the server and its version. Valkey also reports the version of Redis that it is
// compatible with.
func (s *Server) Version(ctx context.Context) (string, error) {
	if version, err := s.info(ctx, "server", "valkey_version"); err == nil {
		return "valkey-server " + version, nil
	}
	version, err := s.info(ctx, "server", "redis_version")
	return "redis-server " + version, err
}

// CPU returns the processor time that the process has used so far, of user and system together.
func (s *Server) CPU(ctx context.Context) (time.Duration, error) {
	var sum time.Duration
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		text, err := s.info(ctx, "cpu", field)
		if err != nil {
			return 0, err
		}
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("INFO cpu: %s: %w", field, err)
		}
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum, nil
}

// Commands returns the number of commands run so far, including commands inside scripts.
func (s *Server) Commands(ctx context.Context) (int64, error) {
	text, err := s.info(ctx, "stats", "total_commands_processed")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// Flush deletes every key, but not the scripts.
func (s *Server) Flush(ctx context.Context) error {
	return s.admin.Do(ctx, s.admin.B().Flushall().Sync().Build()).Error()
}
