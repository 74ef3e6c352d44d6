package hold_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/test/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("hold.update", false, "write what follows into the stories of testdata, to be read then")

// A story is a file of testdata: lines of what happens to a hold, with the time, and behind each, indented, what
// follows. README.txt there has the words.
func TestStories(t *testing.T) {
	paths := expect.NoError(filepath.Glob("testdata/*.txt")).In(t)
	require.Greater(t, len(paths), 25)
	for _, path := range paths {
		if filepath.Base(path) == "README.txt" {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text := string(expect.NoError(os.ReadFile(path)).In(t))
			told := tell(t, text)
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(told), 0o644))
				return
			}
			require.Equal(t, text, told)
		})
	}
}

// story has the holds of one file by their names. Most have one hold, without a name.
type story struct {
	world hold.World
	terms hold.Terms
	holds map[string]*character
}

// character is one hold of a story, with when the last request to each master has left.
type character struct {
	life hold.Hold
	sent []clock.Instant
	ttl  []time.Duration
}

func tell(t *testing.T, text string) string {
	s := &story{holds: map[string]*character{}}
	s.world = hold.World{
		Reach: func(int) fencing.Token { return fencing.MaxToken }, Stall: func() time.Duration { return time.Second },
		Silence: func(sent, now time.Duration) error { return fmt.Errorf("silent for %v", now-sent) },
		Jitter:  func() float64 { return 0 },
	}
	var told strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		fmt.Fprintln(&told, line)
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "hold":
			s.begin(t, words[1:])
		default:
			for _, effect := range s.step(t, words) {
				fmt.Fprintln(&told, "      "+effect)
			}
		}
	}
	return told.String()
}

// begin adds a hold: "hold [name] masters 3 ttl 9s renewed".
func (s *story) begin(t *testing.T, words []string) {
	name, entry, masters, second := "", ballot.Wait, 1, false
	s.terms = hold.Terms{TTL: 9 * time.Second}
	for i := 0; i < len(words); i++ {
		value := func() time.Duration { i++; return duration(t, words[i]) }
		switch word := words[i]; word {
		case "masters":
			i++
			masters = number(t, words[i])
		case "ttl":
			s.terms.TTL = value()
		case "minimum":
			s.terms.MinHold = value()
		case "limit":
			s.terms.MaxHold = value()
		case "renewed":
			s.terms.Renew = true
		case "confirmed":
			s.world.Confirms = true
		case "risks":
			s.world.Risks = true
		case "tries":
			entry = ballot.Try
		case "joins":
			entry = ballot.Join
		case "upgrades":
			entry, second = ballot.Upgrade, true
		case "converts":
			entry, second = ballot.Try, true
		default:
			name = word
		}
	}
	s.terms.HandOff = min(s.terms.TTL, 3*time.Second)
	c := &character{sent: make([]clock.Instant, masters), ttl: make([]time.Duration, masters)}
	c.life.Init(&s.terms, entry, masters, second, 0)
	s.holds[name] = c
}

// step reports an event, "5ms answered 1 granted 33", and returns what follows.
func (s *story) step(t *testing.T, words []string) (told []string) {
	now := hold.Now{Instant: at(duration(t, words[0])), Terms: &s.terms, World: &s.world}
	words = words[1:]
	c := s.holds[""]
	if named := s.holds[words[0]]; named != nil {
		c, words = named, words[1:]
	}
	if words[0] == "asleep" { // only the wall clock has gone on
		now.Wall, words = now.Wall+duration(t, words[1]), words[2:]
	}
	before := c.life.Until()
	effects := c.life.Step(now, s.event(t, c, now, words), nil)
	if until := c.life.Until(); until != before && c.life.Phase() == hold.Held {
		told = append(told, fmt.Sprint("trusted until ", until.Mono))
	}
	for _, f := range effects {
		switch f.Kind {
		case hold.SendAcquire, hold.SendConfirm, hold.SendRaise, hold.SendYield, hold.SendRenew, hold.SendRegain:
			c.sent[f.Master], c.ttl[f.Master] = now.Instant, f.TTL
		default:
		}
		what, how := describe(f)
		if last := len(told) - 1; last >= 0 && f.Kind <= hold.Wait { // the same for another master: in one line
			if first, same := strings.CutSuffix(told[last], how); same && strings.HasPrefix(first, what+" ") {
				told[last] = first + ", " + strconv.Itoa(f.Master) + how
				continue
			}
		}
		if f.Kind <= hold.AskAgain {
			what += " " + strconv.Itoa(f.Master)
		}
		told = append(told, what+how)
	}
	if told == nil {
		told = []string{"-"}
	}
	return told
}

var kinds = map[string]hold.Kind{
	"begin": hold.Begin, "remind": hold.Remind, "late": hold.Late, "give-up": hold.GiveUp,
	"repeated": hold.Repeated, "answered": hold.Answered, "told": hold.Told, "heard": hold.Heard,
	"refreshed": hold.Refreshed, "confirmed": hold.Confirmed, "raised": hold.Raised, "yielded": hold.Yielded,
	"wanted": hold.Wanted, "renewed": hold.Renewed, "regained": hold.Regained, "broken": hold.Broken, "tick": hold.Tick,
	"renew": hold.Renew, "poll": hold.Poll, "set-ttl": hold.SetTTL, "claim": hold.Claim,
	"disclaim": hold.Disclaim, "exchange": hold.Exchange, "replace": hold.Replace, "release": hold.Release,
	"lose": hold.Lose,
}

var statuses = map[string]ballot.Status{
	"queued": ballot.IsQueued, "refused": ballot.IsRefused, "gone": ballot.IsAbsent, "rival": ballot.IsRival,
	"reading": ballot.IsReading,
}

// event reads "answered 1 granted 33 for 3s".
func (s *story) event(t *testing.T, c *character, now hold.Now, words []string) hold.Event {
	kind, known := kinds[words[0]]
	require.True(t, known, words)
	e := hold.Event{Kind: kind, Way: hold.AtOnce}
	words = words[1:]
	if len(words) > 0 {
		if master, err := strconv.Atoi(words[0]); err == nil {
			e.Master, words = master, words[1:]
		}
	}
	e.Sent, e.TTL = c.sent[e.Master], c.ttl[e.Master]
	left := s.terms.TTL
	for i := 0; i < len(words); i++ {
		value := func() string { i++; return words[i] }
		switch word := words[i]; word {
		case "granted":
			e.Answer.Status = ballot.IsGranted
			if i+1 < len(words) && words[i+1][0] >= '0' && words[i+1][0] <= '9' {
				e.Answer.Token = fencing.Token(number(t, value()))
			}
		case "token":
			e.Token = fencing.Token(number(t, value()))
		case "queued", "refused", "gone", "rival", "reading":
			e.Answer.Status = statuses[word]
		case "failed":
			e.Err = errors.New("refused connection")
			e.Answer = ballot.Answer{Status: ballot.NoAnswer, Err: e.Err}
		case "silent":
			e.Err = errors.New("no reply")
			e.Answer = ballot.Answer{Status: ballot.NoAnswer, Err: e.Err, Unknown: true}
		case "wrong-type":
			e.Err = errors.New("wrong type")
			e.Answer = ballot.Answer{Status: ballot.NoAnswer, Err: e.Err, Permanent: true, Conflict: true}
		case "by":
			e.By = errors.New(value())
		case "for":
			left = duration(t, value())
		case "after":
			e.After = duration(t, value())
		case "ttl":
			e.TTL = duration(t, value())
		case "keeps":
			e.Keeps = true
		case "quiet":
			e.Quiet = true
		case "unsent":
			e.Unsent = true
		case "by-heir":
			e.Way = hold.ByHeir
		default:
			e.From = &s.holds[word].life
		}
	}
	switch e.Kind {
	case hold.Told:
		e.Sent = now.Instant
	case hold.Late:
		e.Err = errors.New("no reply in time")
	case hold.SetTTL:
		e.Sent = clock.Instant{}
	default:
	}
	e.Answer.Until = s.world.Drift.Trusted(e.Sent, left)
	return e
}

// describe says what an effect is, and how, in words.
func describe(f hold.Effect) (what, how string) {
	switch f.Kind {
	case hold.SendAcquire:
		return "acquire", ""
	case hold.SendConfirm:
		return "confirm", fmt.Sprint(" of token ", f.Token, " for ", f.Keep)
	case hold.SendRaise:
		return "raise", fmt.Sprint(" to token ", f.Token)
	case hold.SendYield:
		return words(f.Leave, "leave") + words(!f.Leave, "yield"), fmt.Sprint(" of token ", f.Token)
	case hold.SendRenew:
		return "renew", fmt.Sprint(" for ", f.Keep)
	case hold.SendRegain:
		return "regain", fmt.Sprint(" of token ", f.Token, " for ", f.Keep) + words(f.Known, ", which is trusted")
	case hold.SendRelease:
		return "release", fmt.Sprint(", kept ", f.Keep) + words(f.TTL > 0, ", with a tombstone of ", f.TTL) +
			words(f.Strays, ", always") + words(f.Unsent, ", unless it waits here") +
			words(f.At > 0, ", with a minimum until ", f.At) + words(f.Way == hold.Together, ", together")
	case hold.Wait:
		return "wait for", words(f.At > 0, ", ask after ", f.At) + words(f.N > 0, ", ask as after ", f.N, " failures") +
			why(f.Err)
	case hold.Wake:
		return "wake", ""
	case hold.AskAgain:
		return "ask again", ""
	default:
		return describeState(f), ""
	}
}

func describeState(f hold.Effect) string {
	switch f.Kind {
	case hold.Restart:
		return "restart" + why(f.Err)
	case hold.Start:
		return fmt.Sprint("held with token ", f.Token) + words(f.Known, ", handed over")
	case hold.Fail:
		verdicts := map[ballot.Verdict]string{
			ballot.Open: "given up", ballot.TooLate: "too late", ballot.Contended: "contended", ballot.NoQuorum: "no quorum",
			ballot.Conflict: "conflict", ballot.Absent: "absent", ballot.Rival: "rival", ballot.OnlyReads: "only reads",
		}
		return "failed: " + verdicts[f.Verdict] + why(f.Err)
	case hold.Kept:
		return "kept" + why(f.Err)
	case hold.NotKept:
		return fmt.Sprint("not kept, renewed by ", f.N) + why(f.Err)
	case hold.AtRisk:
		return fmt.Sprint("at risk, left ", f.At)
	case hold.Missing:
		return fmt.Sprint("missing ", f.Master, ", stands on ", f.N)
	case hold.End:
		if f.Loss == nil {
			return "ended"
		}
		return fmt.Sprint("ended: ", f.Loss.Reason) + why(f.Loss.Err)
	default:
		return fmt.Sprint("timer ", f.At)
	}
}

// words are said where something is so.
func words(is bool, what ...any) string {
	if !is {
		return ""
	}
	return fmt.Sprint(what...)
}

// why says which masters have failed, and how.
func why(err error) string {
	failures, several := err.(hold.Failures)
	if err != nil && !several {
		return ": " + err.Error()
	}
	var all []string
	for i, err := range failures {
		if err != nil {
			all = append(all, fmt.Sprintf("%d: %v", i, err))
		}
	}
	return words(all != nil, ": ", strings.Join(all, "; "))
}

func at(d time.Duration) clock.Instant { return clock.Instant{Mono: d, Wall: d} }

func duration(t *testing.T, text string) time.Duration {
	return expect.NoError(time.ParseDuration(text)).In(t)
}

func number(t *testing.T, text string) int { return expect.NoError(strconv.Atoi(text)).In(t) }
