// Package settings holds what the options of rwlock and redlock set. It is the one place for the defaults and for the
// rules of the settings.
package settings

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/events"
	"github.com/seed74116694/fencelock/internal/hold"
)

// Locker is the configuration that is fixed when a locker is made. A time in Config that is 0 follows from the TTL.
type Locker struct {
	engine.Config
	Owned bool // the locker closes the clients
	Begin bool // the check of the masters begins with the locker
	Lock  Lock
}

// Lock is the configuration that may differ between two acquisitions of a locker.
type Lock struct {
	engine.Terms
	Linger  time.Duration // 0: the last Unlock of an RWMutex gives the lock back
	refused *Invalid
}

// The limits and defaults that the documentation names.
const (
	MinTTL        = 100 * time.Millisecond
	MaxTTL        = 24 * time.Hour
	MaxMinHold    = 24 * time.Hour
	MaxMeta       = 256
	DefaultTTL    = 10 * time.Second
	DefaultDrift  = 0.01
	DefaultPrefix = "fencelock"
)

// Default returns the settings of a locker without options.
func Default() Locker {
	host, _ := os.Hostname()
	return Locker{
		Config: engine.Config{
			Prefix: DefaultPrefix, Logger: events.Default(), Drift: DefaultDrift, Clock: clock.System(),
		},
		Lock: Lock{Terms: engine.Terms{
			Terms: hold.Terms{TTL: DefaultTTL, Renew: true}, Meta: fmt.Sprintf("%s:%d", host, os.Getpid()),
		}},
	}
}

// Engine returns the configuration of the engine, without a time that is 0.
func (l *Locker) Engine() engine.Config {
	c, ttl := l.Config, l.Lock.TTL
	share := ttl / 20 // short for one of several masters, because the other masters decide
	if len(c.Clients) == 1 {
		share = ttl / 4
	}
	if c.Replicas == 0 {
		c.ReplicaTimeout = 0
	}
	// Every answer that counts only with replicas may take their time longer.
	c.NodeTimeout = cmp.Or(c.NodeTimeout, min(max(share, 50*time.Millisecond), time.Second)) + c.ReplicaTimeout
	c.ReleaseTimeout = cmp.Or(c.ReleaseTimeout, min(ttl, 2*time.Second))
	c.LongestTTL = cmp.Or(c.LongestTTL, ttl)
	return c
}

// Invalid is a setting that breaks a rule, with the fields of rwlock.OptionError.
type Invalid struct {
	Option string
	Value  any
	Rule   string
}

// Apply applies the options to a locker's settings. It returns what is wrong with them, or nil.
func Apply[Option interface{ ApplyLocker(to *Locker) }](to *Locker, opts []Option) *Invalid {
	for _, opt := range opts {
		if any(opt) == nil {
			return &Invalid{"option", "nil", "must not be nil"}
		}
		opt.ApplyLocker(to)
	}
	for _, client := range to.Clients {
		if client == nil {
			return &Invalid{"client", "nil", "must be a client"}
		}
	}
	return to.Check()
}

// Refuse records a rule that an option breaks by itself. Check returns the first one.
func (l *Lock) Refuse(option string, value any, rule string) {
	if l.refused == nil {
		l.refused = &Invalid{option, value, rule}
	}
}

// Positive returns d, for a setting whose zero means "not set". If d is not positive it records a rule for Check. What
// is added to a time of either clock must not overflow, so a d of centuries is cut to 146 years.
func (l *Lock) Positive(option string, d time.Duration) time.Duration {
	if d <= 0 {
		l.Refuse(option, d, "must be positive")
	}
	return min(max(d, 0), 1<<62)
}

// OfSeveral is Positive for a setting that has no meaning with a single master. A single master refuses it.
func (l *Locker) OfSeveral(option string, d time.Duration) time.Duration {
	if len(l.Clients) == 1 {
		l.Lock.Refuse(option, d, "is for the masters of redlock.New: a single one decides alone")
	}
	return l.Lock.Positive(option, d)
}

// The characters that a prefix must not contain: a Cluster reads the braces of a key as its hash tag, and the scripts
// read a channel up to the first character that Lua's %s matches.
const (
	braces = "{}"
	space  = " \t\n\v\f\r"
)

// Check returns the first broken rule, or nil.
func (l *Locker) Check() *Invalid {
	switch {
	case l.LongestTTL > 0 && l.LongestTTL < l.Lock.TTL:
		return &Invalid{"WithQuarantine", l.LongestTTL, fmt.Sprintf("must not be below the TTL of %v", l.Lock.TTL)}
	case l.LongestTTL > MaxTTL:
		return &Invalid{"WithQuarantine", l.LongestTTL, fmt.Sprintf("must be at most %v, the longest TTL", MaxTTL)}
	case l.Prefix == "" || len(l.Prefix) > 128 || strings.ContainsAny(l.Prefix, braces+space):
		return &Invalid{"WithPrefix", fmt.Sprintf("%q", l.Prefix), "must be 1 to 128 bytes without white space and braces"}
	case l.Logger == nil:
		return &Invalid{"WithLogger", "nil", "must be a logger"}
	case l.NodeTimeout > 0 && l.NodeTimeout >= l.Lock.TTL:
		return &Invalid{"WithNodeTimeout", l.NodeTimeout, fmt.Sprintf("must be below the TTL of %v", l.Lock.TTL)}
	case l.Drift < 0 || l.Drift >= 0.5 || math.IsNaN(l.Drift):
		return &Invalid{"WithDrift", l.Drift, "must be at least 0 and below 0.5"}
	}
	if i := l.checkReplicas(); i != nil {
		return i
	}
	return l.Lock.Check()
}

// MaxReplicaTimeout is less than the time within which a batch of calls must be answered.
const MaxReplicaTimeout = 3 * time.Second

func (l *Locker) checkReplicas() *Invalid {
	switch {
	case l.Replicas < 0:
		return &Invalid{"WithReplicas", l.Replicas, "must not be negative"}
	case l.Replicas == 0:
		return nil
	case l.ReplicaTimeout < time.Millisecond || l.ReplicaTimeout > MaxReplicaTimeout:
		return &Invalid{"WithReplicas", l.ReplicaTimeout, fmt.Sprintf("must be given 1ms to %v", MaxReplicaTimeout)}
	case l.Lock.TTL < 3*l.ReplicaTimeout: // the next renewal is due by then
		rule := fmt.Sprintf("must be given at most a third of the TTL of %v", l.Lock.TTL)
		return &Invalid{"WithReplicas", l.ReplicaTimeout, rule}
	}
	return nil
}

// Check returns the first broken rule, or nil.
func (l *Lock) Check() *Invalid {
	switch {
	case l.TTL < MinTTL || l.TTL > MaxTTL:
		return &Invalid{"WithTTL", l.TTL, fmt.Sprintf("must be %v to %v", MinTTL, MaxTTL)}
	case l.refused != nil:
		return l.refused
	case l.MaxHold > l.TTL && !l.Renew:
		rule := fmt.Sprintf("cannot be reached WithoutRenewal: the lease ends after its TTL of %v", l.TTL)
		return &Invalid{"WithMaxHold", l.MaxHold, rule}
	case l.MinHold > MaxMinHold:
		return &Invalid{"WithMinHold", l.MinHold, fmt.Sprintf("must be at most %v", MaxMinHold)}
	case len(l.Meta) > MaxMeta:
		return &Invalid{"WithMeta", fmt.Sprintf("%d bytes", len(l.Meta)), fmt.Sprintf("must be at most %d bytes", MaxMeta)}
	}
	return nil
}

// MaxName bounds a lock's name, in bytes. It equals fencing.MaxResource, because a fence carries the name. Each key of
// the lock on the server contains the name too.
const MaxName = 512

// CheckName refuses a name, or returns nil. Scripts, keys, headers and logs accept any name that passes.
func CheckName(name string) *Invalid {
	switch {
	case name == "" || len(name) > MaxName:
		return &Invalid{"name", fmt.Sprintf("%d bytes", len(name)), fmt.Sprintf("must be 1 to %d bytes", MaxName)}
	case !utf8.ValidString(name):
		return &Invalid{"name", fmt.Sprintf("%q", name), "must be valid UTF-8"}
	}
	return nil
}

const MaxNames = 1000

type want = struct {
	Name string
	Mode fencing.Mode
}

// InOrder returns the positions of the wanted locks in the byte order of their names, or refuses them.
func InOrder[W ~want](wants []W) (sorted []int, refused *Invalid) {
	if len(wants) == 0 || len(wants) > MaxNames {
		return nil, &Invalid{"wants", len(wants), fmt.Sprintf("must be 1 to %d", MaxNames)}
	}
	name := func(i int) string { return want(wants[i]).Name }
	sorted = make([]int, len(wants))
	for i, w := range wants {
		if refused := CheckName(name(i)); refused != nil {
			return nil, refused
		}
		if mode := want(w).Mode; mode != fencing.Read && mode != fencing.Write {
			return nil, &Invalid{"mode", mode, fmt.Sprintf("must be read or write, of lock %q", name(i))}
		}
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(a, b int) int { return cmp.Compare(name(a), name(b)) })
	for i, at := range sorted[1:] {
		if name(at) == name(sorted[i]) {
			return nil, &Invalid{"wants", fmt.Sprintf("%q", name(at)), "must not occur twice"}
		}
	}
	return sorted, nil
}

type LockerOption func(*Locker)

// Owned has the locker close its clients.
var Owned = LockerOption(func(l *Locker) { l.Owned = true })

func (o LockerOption) ApplyLocker(l *Locker) { o(l) }

// MutexOption changes a setting of one RWMutex, or of all of a locker.
type MutexOption func(*Lock)

func (o MutexOption) ApplyLocker(l *Locker) { o(&l.Lock) }

func (o MutexOption) ApplyMutex(l *Lock) { o(l) }

// LockOption changes a setting of one acquisition or one RWMutex, or of all of a locker.
type LockOption func(*Lock)

func (o LockOption) ApplyLocker(l *Locker) { o(&l.Lock) }

func (o LockOption) ApplyMutex(l *Lock) { o(l) }

func (o LockOption) ApplyLock(l *Lock) { o(l) }
