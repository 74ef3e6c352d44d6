package engine

import (
	"crypto/sha1" //nolint:gosec // the server names scripts by it
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/scripts"
)

// program is a script as it is sent: by its digest, or whole where the server does not know it.
type program struct {
	source string
	digest func() string // late: SHA-1 panics at start-up in a process restricted to FIPS 140
}

func newProgram(name scripts.Name) *program {
	source := scripts.Source(name)
	return &program{source: source, digest: sync.OnceValue(func() string {
		sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
		return hex.EncodeToString(sum[:])
	})}
}

// programs are the scripts of one engine.
type programs struct {
	acquire, join, renew, refresh, release, raise, yield, marker, inspect *program
}

func newPrograms() programs {
	return programs{
		acquire: newProgram(scripts.Acquire),
		join:    newProgram(scripts.Join),
		renew:   newProgram(scripts.Renew),
		refresh: newProgram(scripts.Refresh),
		release: newProgram(scripts.Release),
		raise:   newProgram(scripts.Raise),
		yield:   newProgram(scripts.Yield),
		marker:  newProgram(scripts.Marker),
		inspect: newProgram(scripts.Inspect),
	}
}

func (p *program) byDigest(b rueidis.Builder, keys, args []string) rueidis.Completed {
	return b.Evalsha().Sha1(p.digest()).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// whole is for a server that does not know the script. It may have been restarted, so one of several masters is to
// compare its run id; see ARGV 1 in prelude.lua.
func (p *program) whole(b rueidis.Builder, keys, args []string) rueidis.Completed {
	if len(args) > 0 {
		if ballot, unchecked := strings.CutSuffix(args[0], " 0"); unchecked {
			args = slices.Clone(args)
			args[0] = ballot + " 1"
		}
	}
	return b.Eval().Script(p.source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// unknownScript reports whether the server asked for the source: after a restart, a failover, SCRIPT FLUSH.
func unknownScript(r rueidis.RedisResult) bool {
	err, ok := rueidis.IsRedisErr(r.Error())
	return ok && err.IsNoScript()
}
