//go:build unix

package testredis

import (
	"syscall"
	"time"
)

// Freeze suspends the process: its connections stay open, dials succeed, and it answers nothing. Freeze returns when
// the process has stopped.
func (s *Server) Freeze() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.signal(syscall.SIGSTOP) {
		return
	}
	s.frozen = true
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !stopped(s.proc.Process.Pid) {
		select {
		case <-s.proc.Ended:
			return
		case <-limit.C:
			s.t.Errorf("%s does not stop", s.Addr())
			return
		case <-tick.C:
		}
	}
}

// Thaw resumes a frozen process. It then reads everything that was sent to it while it was frozen.
func (s *Server) Thaw() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.signal(syscall.SIGCONT)
		s.frozen = false
	}
}

// answers reports whether the process runs.
func (s *Server) answers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && !s.frozen
}

func (s *Server) signal(sig syscall.Signal) bool {
	if err := s.proc.Process.Signal(sig); err != nil {
		s.t.Errorf("%v to %s: %v", sig, s.Addr(), err)
		return false
	}
	return true
}
