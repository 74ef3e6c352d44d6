package masterset

import (
	"context"
	"slices"
	"time"
)

// MostBeginPause is the longest pause between the passes of Begin.
const MostBeginPause = mostBeginPause

// Server names one master in a client's list.
type Server = server

// Client is a Set without its transport: it has the rules and the history.
type Client struct{ view view }

// NewClient returns a client with this list of masters.
func NewClient(longestTTL time.Duration, masters ...Server) *Client {
	return &Client{view{masters: masters, longestTTL: longestTTL, history: newHistory(len(masters))}}
}

// Answer is the reply of marker.lua as text.
type Answer struct {
	Fields []string
	Err    error
}

func (a Answer) reply() reply {
	if a.Err != nil {
		return reply{err: a.Err}
	}
	return newReply(a.Fields)
}

// Finding is what the rules say of one master.
type Finding struct {
	State   string
	Seat    int
	InOrder bool
	ID      string // of its marker
	Defect  string
	Rival   string
}

func findings(all []finding) []Finding {
	found := make([]Finding, len(all))
	for i, f := range all {
		state := [...]string{silent: "silent", unfit: "unfit", unmarked: "unmarked", replaced: "replaced", member: "member"}
		found[i] = Finding{State: state[f.state], Seat: f.seat, InOrder: f.inOrder(), ID: f.marker.id, Rival: f.rival}
		if f.defect != nil {
			found[i].Defect = f.defect.Error()
		}
	}
	return found
}

// Judge returns the findings, and why the set must not be used.
func (c *Client) Judge(answers ...Answer) ([]Finding, error) {
	replies := make([]reply, len(answers))
	for i, a := range answers {
		replies[i] = a.reply()
	}
	all := c.view.judge(replies)
	return findings(all), c.view.refusal(all)
}

// ValidateAlone returns why a server must not be a single master.
func (c *Client) ValidateAlone(a Answer) error { return c.view.validateAlone(a.reply()) }

// Bootstrap makes a pass, and takes over what it found. A request is the arguments of marker.lua, nil for none.
func (c *Client) Bootstrap(ask func(requests [][]string) []Answer, newID func() string) ([]Finding, error) {
	b := &bootstrap{view: c.view, newID: newID}
	b.history = c.view.clone()
	b.ask = func(_ context.Context, requests []*request) []reply {
		args := make([][]string, len(requests))
		for i, r := range requests {
			if r != nil {
				args[i] = r.args(b.rules(), Quarantine(b.longestTTL))
			}
		}
		answers := ask(args)
		replies := make([]reply, len(answers))
		for i, a := range answers {
			replies[i] = a.reply()
		}
		return replies
	}
	err := b.run(context.Background())
	for i, f := range b.found {
		if f.inOrder() {
			c.view.add(i, f)
		}
	}
	return findings(b.found), err
}

// MergeTerms returns the later terms of two lists, and whether the first list misses some of the second.
func MergeTerms(mine, theirs string) (merged string, misses bool) {
	t, other := readTerms(mine), readTerms(theirs)
	misses = t.misses(other)
	t = slices.Clone(t)
	t.learn(other)
	return t.text(), misses
}

// Replaced reports whether the process with a term is not in its seat any more.
func Replaced(own, last string) bool { return readTerms(own).of(0).replacedBy(readTerms(last).of(0)) }
