package server

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// The threshold, in microseconds, keeps most commands inside scripts out of the log, where thousands of them would
// drive out the scripts themselves. Every script takes longer; the log has room for the commands that exceed it, too.
const (
	threshold = "2"
	entries   = 1 << 14
)

// Timed makes the server log the time of each script, until the returned function is called.
func (s *Server) Timed(ctx context.Context) (stop func(context.Context) error, err error) {
	set := func(ctx context.Context, micros string) error {
		return s.admin.Do(ctx, s.admin.B().ConfigSet().ParameterValue().
			ParameterValue("slowlog-log-slower-than", micros).
			ParameterValue("slowlog-max-len", strconv.Itoa(entries)).Build()).Error()
	}
	return func(ctx context.Context) error { return set(ctx, "-1") }, set(ctx, threshold)
}

// ForgetTimes clears the log.
func (s *Server) ForgetTimes(ctx context.Context) error {
	return s.admin.Do(ctx, s.admin.B().SlowlogReset().Build()).Error()
}

// Times returns the server's times for the scripts that clients of this name have sent, the oldest first.
func (s *Server) Times(ctx context.Context, clientName string) ([]time.Duration, error) {
	log, err := s.admin.Do(ctx, s.admin.B().SlowlogGet().Count(entries).Build()).ToArray()
	if err != nil {
		return nil, err
	}
	var times []time.Duration
	for i := len(log) - 1; i >= 0; i-- {
		fields, err := log[i].ToArray() // id, time, microseconds, command, address, client name
		if err != nil || len(fields) < 6 {
			continue
		}
		command, err := fields[3].AsStrSlice()
		if err != nil {
			return nil, err
		}
		name, err := fields[5].ToString()
		if err != nil {
			return nil, err
		}
		micros, err := fields[2].AsInt64()
		if err != nil {
			return nil, err
		}
		if name == clientName && runsScript(command[0]) {
			times = append(times, time.Duration(micros)*time.Microsecond)
		}
	}
	return times, nil
}

func runsScript(command string) bool {
	command = strings.ToUpper(command)
	return strings.HasPrefix(command, "EVAL") || strings.HasPrefix(command, "FCALL")
}
