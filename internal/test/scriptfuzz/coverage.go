package scriptfuzz

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed74116694/fencelock/scripts"
)

// Coverage counts the reply codes and messages that were seen.
type Coverage map[string]int

// codes are the reply codes of each script, as its header lists them. "more" is the work that refresh and release leave
// to the client; the other codes of refresh and renew are for each hold.
var codes = map[scripts.Name][]string{
	scripts.Acquire: {"0", "1", "2", "3", "4", "5", "7"},
	adoption:        {"1", "3", "7", "broken"},
	scripts.Join:    {"0", "1", "2", "3", "4", "5"},
	scripts.Renew:   {"0", "1", "2", "3", "broken"},
	scripts.Refresh: {"0", "1", "2", "more 0", "more 1", "more 2"},
	scripts.Release: {"0", "1", "2", "more 0", "more 1", "more 2", "broken"},
	scripts.Raise:   {"0", "1", "4", "5", "6"},
	scripts.Yield:   {"0", "1", "2", "4", "5"},
	scripts.Regain:  {"0", "1", "2", "4", "5"},
	scripts.Break:   {"0", "1", "2", "3"},
	scripts.Marker:  {"single", "look", "join", "note", "succeed"},
	scripts.Group:   {"released", "granted", "queued", "refused", "left"},
	scripts.Inspect: {"mode ", "mode r", "mode w", "state q", "state p", "state d"},
}

// adoption stands for an acquire that adopts a hold.
const adoption scripts.Name = "adoption"

func (s step) seenAs() scripts.Name {
	if name := scripts.Name(s.Do); name != scripts.Acquire || !s.Adopts {
		return name
	}
	return adoption
}

var messages = []string{"grant", "grant of a block", "wanted", "yield", "broken"}

func (c Coverage) add(what string) { c[what]++ }

// note counts the codes in a reply.
func (c Coverage) note(name scripts.Name, got []any) {
	add := func(code any) { c.add(fmt.Sprint(name, ": ", code)) }
	switch name {
	case scripts.Refresh:
		add(fmt.Sprint("more ", got[2]))
		for i := 3; i < len(got); i += 3 {
			add(got[i])
		}
	case scripts.Group:
		for _, text := range got {
			add(codeOf(text))
		}
	case scripts.Renew:
		for _, status := range got[1:] {
			if _, who := status.(string); who {
				status = "broken"
			}
			add(status)
		}
	case scripts.Inspect:
		add(fmt.Sprint("mode ", got[1]))
		for _, waiter := range got[4].([]any) {
			add(fmt.Sprint("state ", waiter.([]any)[6]))
		}
	case scripts.Release:
		add(fmt.Sprint("more ", got[2]))
		add(got[0])
		if len(got) > 3 {
			add("broken")
		}
	case adoption:
		if code := fmt.Sprint(got[0]); !slices.Contains(codes[name], code) {
			c.note(scripts.Acquire, got)
		} else if add(code); code == "3" && len(got) > 4 {
			add("broken")
		}
	default:
		add(got[0])
	}
}

// expected returns every entry that a long run has to have.
func expected() (all []string) {
	for name, of := range codes {
		for _, code := range of {
			all = append(all, fmt.Sprint(name, ": ", code))
		}
	}
	for _, message := range messages {
		all = append(all, "message: "+message)
	}
	slices.Sort(all)
	return all
}

// Missing returns the reply codes and messages that were never seen, and the ones that no header lists.
func (c Coverage) Missing() (never, unlisted []string) {
	all := expected()
	for _, entry := range all {
		if c[entry] == 0 {
			never = append(never, entry)
		}
	}
	for _, entry := range slices.Sorted(maps.Keys(c)) {
		if !slices.Contains(all, entry) {
			unlisted = append(unlisted, entry)
		}
	}
	return never, unlisted
}

// Add adds another player's counts.
func (c Coverage) Add(other Coverage) {
	for entry, n := range other {
		c[entry] += n
	}
}

// Table returns the counts, one script a line.
func (c Coverage) Table() string {
	rows := map[string][]string{}
	for _, entry := range slices.Sorted(maps.Keys(c)) {
		name, code, _ := strings.Cut(entry, ": ")
		rows[name] = append(rows[name], fmt.Sprintf("%s: %d", code, c[entry]))
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "%-8s %s\n", name, strings.Join(rows[name], ", "))
	}
	return b.String()
}

// codeOf returns the code of a member's reply.
func codeOf(text any) string {
	switch {
	case text == "":
		return "left"
	case text == released:
		return "released"
	case isCode(text, "0"):
		return "queued"
	case isCode(text, "2"):
		return "refused"
	default:
		return "granted"
	}
}
