package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// answer is what one master said of one hold.
type answer struct {
	status  int64
	token   fencing.Token
	left    time.Duration // of the hold if granted, else until something may expire there
	mode    fencing.Mode  // of the joined hold
	holder  *Holder       // of the lock, where this hold is not
	elapsed int64         // the server's clock, microseconds
	err     error         // no answer, or a refusal: what the other fields would say is unknown or untrue
}

// The statuses of acquire.lua.
const (
	statusQueued   = 0
	statusGranted  = 1
	statusRefused  = 2
	statusBuried   = 3 // released before it came
	statusAbstains = 4 // the master has no vote
)

// The statuses of join.lua.
const (
	joinAbsent  = 0
	joinUpgrade = 2
)

func readAnswer(r rueidis.RedisResult) answer {
	fields, err := r.ToArray()
	if err != nil {
		return answer{err: err}
	}
	if len(fields) < 4 {
		return answer{err: fmt.Errorf("malformed reply of %d fields", len(fields))}
	}
	var n [4]int64
	for i := range n {
		if n[i], err = fields[i].AsInt64(); err != nil {
			return answer{err: fmt.Errorf("malformed reply: %w", err)}
		}
	}
	a := answer{status: n[0], token: fencing.Token(n[1]), left: time.Duration(n[2]) * time.Millisecond, elapsed: n[3]}
	if len(fields) == 6 {
		mode, _ := fields[5].ToString()
		a.mode = readMode(mode)
	}
	if len(fields) >= 7 {
		record, _ := fields[4].ToString()
		hold, _ := fields[5].ToString()
		left, _ := fields[6].AsInt64()
		a.holder = readHolder(record, hold, left, n[3])
	}
	return a
}

// readInts reads a reply of integers into an array of the caller's.
func readInts(r rueidis.RedisResult, into []int64) error {
	fields, err := r.ToArray()
	if err != nil {
		return err
	}
	if len(fields) != len(into) {
		return fmt.Errorf("malformed reply of %d fields", len(fields))
	}
	for i := range into {
		if into[i], err = fields[i].AsInt64(); err != nil {
			return fmt.Errorf("malformed reply: %w", err)
		}
	}
	return nil
}

// Holder is one granted hold as a master shows it.
type Holder struct {
	Owner, Hold, Meta string
	Mode              fencing.Mode
	Count             int
	Remaining, Held   time.Duration
}

// readHolder reads a record of prelude.lua.
func readHolder(record, hold string, left, serverMicros int64) *Holder {
	f := strings.SplitN(record, " ", 8)
	if len(f) != 8 {
		return nil
	}
	var since int64
	if _, err := fmt.Sscan(f[5], &since); err != nil {
		return nil
	}
	return &Holder{
		Owner: f[2], Hold: hold, Meta: f[7], Mode: readMode(f[1]), Count: 1,
		Remaining: time.Duration(left) * time.Millisecond,
		Held:      time.Duration(serverMicros/1000-since) * time.Millisecond,
	}
}

func readMode(s string) fencing.Mode {
	if s == "w" {
		return fencing.Write
	}
	return fencing.Read
}

func modeArg(m fencing.Mode) string {
	if m == fencing.Write {
		return "w"
	}
	return "r"
}
