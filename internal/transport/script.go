package transport

import (
	"crypto/sha1" //nolint:gosec // the server names scripts by it
	"encoding/hex"
	"sync"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// Script is a program to send: by its digest, or as its source if the server does not know it.
type Script struct {
	name   scripts.Name
	salt   string
	votes  bool          // its first argument is a vote
	digest func() string // computed late: SHA-1 panics at start-up in a process restricted to FIPS 140
}

// NewScript returns the script of that name. A salt is added as a comment. Only clients that know the salt can have
// loaded a script with that digest, so the first of these clients to call detects a server that lost its data, or that
// is another process.
func NewScript(name scripts.Name, salt string) *Script {
	s := &Script{name: name, salt: salt, votes: name != scripts.Marker && name != scripts.Inspect}
	s.digest = sync.OnceValue(func() string {
		sum := sha1.Sum([]byte(s.source())) //nolint:gosec // as above
		return hex.EncodeToString(sum[:])
	})
	return s
}

// source builds the text when it is needed, which is rare: the process keeps the text without salt once, for all
// lockers.
func (s *Script) source() string {
	text := scripts.Source(s.name)
	if s.salt != "" {
		text += "\n-- " + s.salt + "\n"
	}
	return text
}

// command returns the command that calls the script, by its source or by its digest. Keys and arguments on a caller's
// stack stay there.
//
// The source is for a server that does not know the script. The server may have been restarted, so one of several
// masters has to compare its run id with the run id in the marker.
func (s *Script) command(
	b rueidis.Builder, mode sendMode, keys []string, vote wire.Vote, args []string,
) rueidis.Completed {
	if mode.lockOnly {
		keys = keys[:1]
	}
	if mode.source {
		vote.Check = true
		call := b.Eval().Script(s.source()).Numkeys(int64(len(keys))).Key(keys...)
		if !s.votes {
			return call.Arg(args...).Build()
		}
		return call.Arg(vote.Arg()).Arg(args...).Build()
	}
	call := b.Evalsha().Sha1(s.digest()).Numkeys(int64(len(keys))).Key(keys...)
	if !s.votes {
		return call.Arg(args...).Build()
	}
	return call.Arg(vote.Arg()).Arg(args...).Build()
}
