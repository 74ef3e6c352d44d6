package transport

import (
	"crypto/sha1" //nolint:gosec // the server names scripts by it
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/scripts"
)

// Script is a program as it is sent: by its digest, or whole where the server does not know it.
type Script struct {
	name   scripts.Name
	salt   string
	digest func() string // late: SHA-1 panics at start-up in a process restricted to FIPS 140
}

// NewScript returns the script of that name. A salt is added as a comment: it makes the digest one that only those who
// know the salt can have loaded, so that a server that lost its data is found by the first of them to come.
func NewScript(name scripts.Name, salt string) *Script {
	s := &Script{name: name, salt: salt}
	s.digest = sync.OnceValue(func() string {
		sum := sha1.Sum([]byte(s.source())) //nolint:gosec // as above
		return hex.EncodeToString(sum[:])
	})
	return s
}

// source is made when it is needed, which is seldom: the process keeps the text without salt once, for all lockers.
func (s *Script) source() string {
	text := scripts.Source(s.name)
	if s.salt != "" {
		text += "\n-- " + s.salt + "\n"
	}
	return text
}

// command returns the command that calls the script, whole or by its digest. The two are no function values: through
// one, keys and arguments on a caller's stack would go to the heap.
func (s *Script) command(b rueidis.Builder, whole bool, keys, args []string) rueidis.Completed {
	if whole {
		return s.whole(b, keys, args)
	}
	return s.byDigest(b, keys, args)
}

func (s *Script) byDigest(b rueidis.Builder, keys, args []string) rueidis.Completed {
	return b.Evalsha().Sha1(s.digest()).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// whole is for a server that does not know the script. It may have been restarted, so one of several masters is told to
// compare its run id with the marker's: the vote is the first argument, and its last digit says so.
func (s *Script) whole(b rueidis.Builder, keys, args []string) rueidis.Completed {
	if len(args) > 0 {
		if vote, unchecked := strings.CutSuffix(args[0], " 0"); unchecked {
			args = slices.Clone(args)
			args[0] = vote + " 1"
		}
	}
	return b.Eval().Script(s.source()).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}
