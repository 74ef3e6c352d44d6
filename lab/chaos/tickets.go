package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/rwlock"
)

// pass adopts a lease that a section of any process has detached, or takes a new lease, and mostly detaches it. The
// tickets are files, so they outlive a process that is killed.
func (c *client) pass(ctx context.Context, name string, limit time.Duration) {
	s, lease := c.adopt(ctx, limit)
	if lease == nil {
		write, take := c.rng.IntN(2) == 0, c.locker.RLock
		if write {
			take = c.locker.Lock
		}
		s = c.span(name, "detach", write)
		s.Queued = true
		var err error
		if lease, err = take(ctx, name); err != nil {
			c.failed(s, limit, err)
			return
		}
		s.Granted, s.Token = now(), uint64(lease.Token())
	}
	for {
		held := lease.Context(context.Background())
		c.work(&s, held)
		if c.rng.IntN(4) == 0 || !c.detach(s, lease) {
			c.look(&s, held)
			c.ended(s, lease.Release(context.Background()))
			return
		}
		if c.rng.IntN(4) == 0 { // the ticket waits for another client, and the lock is taken meanwhile
			return
		}
		if s, lease = c.adopt(ctx, limit); lease == nil {
			return
		}
	}
}

// detach detaches the lease, and reports whether a ticket was made. Sometimes it goes on to read and write, as work
// does that has not noticed.
func (c *client) detach(s history.Span, lease *rwlock.Lease) bool {
	ctx, cancel := context.WithTimeout(context.Background(), c.w.cfg.TTL)
	defer cancel()
	ttl := max(c.w.cfg.TTL/2, c.millis(int(c.w.cfg.TTL.Milliseconds())))
	ticket, err := lease.Detach(ctx, rwlock.WithTTL(ttl))
	if err != nil {
		return false
	}
	if s.Ended, s.End = now(), "detached"; lease.Err() == nil {
		panic("a lease is trusted beside its ticket")
	}
	c.w.record(history.Event{Span: &s})
	text, err := json.Marshal(ticket)
	if err != nil {
		panic(err)
	}
	path := filepath.Join(c.w.cfg.Tickets, fmt.Sprint(s.Owner))
	if err := errors.Join(os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path)); err != nil {
		panic(err)
	}
	if c.registers != nil && s.Write && c.rng.IntN(4) == 0 {
		c.registers.read(&s)
		c.registers.write(&s, c.rng.Uint64()|1)
	}
	return true
}

// adopt tries a ticket, at the same time as other clients.
func (c *client) adopt(ctx context.Context, limit time.Duration) (s history.Span, lease *rwlock.Lease) {
	paths, err := filepath.Glob(filepath.Join(c.w.cfg.Tickets, "*[0-9]"))
	if err != nil {
		panic(err)
	}
	if len(paths) == 0 {
		return s, nil
	}
	path := paths[c.rng.IntN(len(paths))]
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) { // another client was first
		return s, nil
	}
	var ticket rwlock.Ticket
	if err := errors.Join(err, json.Unmarshal(text, &ticket)); err != nil {
		panic(err)
	}
	s = c.span(ticket.Name, "adopt", ticket.Mode == fencing.Write)
	s.Ticket, s.From = ticket.Hold, uint64(ticket.Token)
	lease, err = c.locker.Adopt(ctx, ticket)
	if err == nil || errors.Is(err, rwlock.ErrTicket) || errors.Is(err, rwlock.ErrLost) {
		_ = os.Remove(path)
	}
	if err != nil {
		c.failed(s, limit, err)
		return s, nil
	}
	s.Granted, s.Token = now(), uint64(lease.Token())
	return s, lease
}
