package scriptfuzz

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// Sequence is what happens to one lock on one master. It does not depend on the times and tokens of a run, so it can be
// played again, in part and on any server.
type Sequence struct {
	Several bool // masters
	Start   int64
	steps   []step
}

// What a step does, where it is no script.
const (
	doJump    = "jump"    // the clock steps
	doLose    = "lose"    // a key is deleted
	doRestart = "restart" // the master's data is another process's

	loseMarker  = "marker" // the key of a doLose, in place of a suffix
	thisProcess = "HERE"   // stands for the server's run id in terms
)

// step is one call, or one event. A hold is a number, see holdID.
type step struct {
	Do      string      `json:"do"`
	Hold    int         `json:"hold,omitempty"`
	Others  []int       `json:"others,omitempty"`
	Mode    string      `json:"mode,omitempty"`
	Owner   string      `json:"owner,omitempty"` // its name, or self
	From    int         `json:"from,omitempty"`
	Adopts  bool        `json:"adopts,omitempty"` // the hold From, which has the token of Of
	Secret  int         `json:"secret,omitempty"` // of an adoption, and of a renewal of one hold that is detached
	Kind    string      `json:"kind,omitempty"`   // of the holds of a renewal; or s
	Block   int64       `json:"block,omitempty"`
	TTL     int64       `json:"ttl,omitempty"`
	Claim   int64       `json:"claim,omitempty"`
	Route   string      `json:"route,omitempty"`
	Meta    int         `json:"meta,omitempty"`
	Order   string      `json:"order,omitempty"`
	Tomb    int64       `json:"tomb,omitempty"`
	Flag    bool        `json:"flag,omitempty"`  // strays may be on their way; at once; in any case
	Again   bool        `json:"again,omitempty"` // an acquire may be, which its client may send again
	Least   int64       `json:"least,omitempty"` // of a release with a minimum
	Rest    int64       `json:"rest,omitempty"`
	Outrun  bool        `json:"outrun,omitempty"` // a release names the token of a lease, and that of its grant
	Of      int         `json:"of,omitempty"`     // the token that this hold was last granted
	Plus    int64       `json:"plus,omitempty"`   // is added to the token
	Trusted bool        `json:"trusted,omitempty"`
	Vote    *voteArg    `json:"vote,omitempty"`
	Marker  *markerCall `json:"marker,omitempty"`
	Us      int64       `json:"us,omitempty"`  // of a jump
	Key     string      `json:"key,omitempty"` // that is lost: its suffix
	Alone   bool        `json:"alone,omitempty"`
	Quiet   bool        `json:"quiet,omitempty"` // the keys are not compared after it
	Older   bool        `json:"older,omitempty"` // by the script of another version, see NewPlayer
}

// leaves reports whether a yield gives the grant back in any case.
func (s step) leaves() bool { return s.Do == string(scripts.Yield) && s.Flag }

// own returns the token of a grant for a regain or a release to name: mostly the last one of the hold.
func (s step) own(p *Player) int64 { return p.m.tokens[holdID(s.Hold)] - int64(s.Hold%5/4) }

// voteArg is the first argument of a script on one of several masters.
type voteArg struct {
	Ahead int64  `json:"ahead,omitempty"` // of the server's clock, in microseconds
	Seen  string `json:"seen"`            // the marker: now, old, or - for none
	Check bool   `json:"check,omitempty"`
}

// The routes of processes: the player listens to all channels but one.
const (
	heardRoute   = "pheard"
	uncountRoute = "bheard"
	deafRoute    = "pdeaf"
	shardedRoute = "ssharded"
)

var metas = []string{"", "m e t a ^ % {}", "=5 n ", strings.Repeat("z", 200), "a\nb\x00c", "g 1 2 3 r"}

// holdID returns the id of a hold. Ids are ordered as their numbers.
func holdID(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("01%024d", n)
}

func (s step) asHold() hold {
	h := hold{
		id: holdID(s.Hold), mode: s.Mode, from: holdID(s.From), route: cmp.Or(s.Route, heardRoute), block: s.Block,
		claim: s.Claim, meta: metas[s.Meta%len(metas)],
	}
	switch s.Owner {
	case "":
	case "self":
		h.owner = h.id
	default:
		h.owner = ownerName(s.Owner)
	}
	h.adopts = s.Adopts
	return h
}

func (s step) secret() string { return fmt.Sprint("secret ", s.Secret) }

// mark returns the mark that a renewal gives its hold, or nothing.
func (s step) mark() string {
	if s.Secret == 0 || len(s.Others) != 1 {
		return ""
	}
	return wire.MarkOf(s.secret())
}

func ownerName(short string) string { return fmt.Sprintf("%026s", short) }

func holdIDs(of []int) (ids []string) {
	for _, n := range of {
		ids = append(ids, holdID(n))
	}
	return ids
}

// header is the first line of the text of a sequence.
type header struct {
	Several bool  `json:"several"`
	Start   int64 `json:"start"`
}

// Text returns the sequence as JSON lines, which Parse reads.
func (s Sequence) Text() string {
	var b strings.Builder
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	_ = out.Encode(header{s.Several, s.Start}) // a Builder takes everything
	for _, one := range s.steps {
		_ = out.Encode(one)
	}
	return b.String()
}

// Parse reads the text of a sequence. Lines that begin with # are comments.
func Parse(text []byte) (Sequence, error) {
	var s Sequence
	var kept []byte
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if !bytes.HasPrefix(lines.Bytes(), []byte("#")) {
			kept = append(append(kept, lines.Bytes()...), '\n')
		}
	}
	in := json.NewDecoder(bytes.NewReader(kept))
	in.DisallowUnknownFields()
	var first header
	if err := in.Decode(&first); err != nil {
		return s, fmt.Errorf("the first line of a sequence: %w", err)
	}
	s.Several, s.Start = first.Several, first.Start
	for {
		var one step
		err := in.Decode(&one)
		if err == io.EOF {
			return s, lines.Err()
		}
		if err != nil {
			return s, fmt.Errorf("step %d: %w", len(s.steps)+1, err)
		}
		s.steps = append(s.steps, one)
	}
}

// Len returns the number of steps.
func (s Sequence) Len() int { return len(s.steps) }

// without returns the sequence without the steps from i to j.
func (s Sequence) without(i, j int) Sequence {
	s.steps = slices.Delete(slices.Clone(s.steps), i, min(j, len(s.steps)))
	return s
}
