package scriptfuzz

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed74116694/fencelock/scripts"
)

// arguments returns the arguments of a script after the vote, as its header says.
func arguments(p *Player, s step) []any {
	id, h := holdID(s.Hold), s.asHold()
	switch scripts.Name(s.Do) {
	case scripts.Acquire:
		args := []any{h.request(s.TTL), h.details()}
		if s.Order == "0" {
			args = append(args, "0")
		}
		if s.Adopts {
			args = append(args, p.token(s, s.Of), s.secret())
		}
		return args
	case scripts.Join:
		return []any{id, h.owner, s.Mode, s.TTL, h.details(), joined(p, s)}
	case scripts.Raise, scripts.Yield:
		args := []any{id, p.token(s, s.Of)}
		if s.leaves() {
			args = append(args, 1)
		}
		return args
	case scripts.Break:
		return []any{id, flag(s.Flag), s.Tomb, breaker}
	case scripts.Regain:
		return []any{id, s.TTL, p.token(s, s.Of), h.details(), flag(s.Trusted), s.own(p)}
	case scripts.Release:
		args := []any{id, s.Tomb, map[bool]any{true: 2, false: flag(s.Flag)}[s.Again]}
		for _, other := range holdIDs(s.Others) {
			args = append(args, other)
		}
		switch {
		case s.Outrun:
			args = append(args, fmt.Sprint(s.Least, " ", s.Rest, " ", p.token(s, s.Of), " ", s.own(p)))
		case s.Rest > 0:
			args = append(args, fmt.Sprint(s.Least, " ", s.Rest))
		}
		if len(args) == 3 && s.Tomb == 0 {
			return args[:1] // as a client sends it
		}
		return args
	case scripts.Refresh:
		args := []any{routeArg(s)}
		for _, other := range holdIDs(s.Others) {
			args = append(args, other)
		}
		return args
	case scripts.Renew:
		args := []any{s.TTL, cmp.Or(s.Kind, "s") + strings.TrimSuffix("#"+s.mark(), "#")}
		for _, n := range s.Others {
			args = append(args, holdID(n), fmt.Sprintf("%016d", p.token(s, n)))
		}
		return args
	default:
		return nil
	}
}

// breaker is who breaks holds, and why.
const breaker = "3:opsstuck"

func routeArg(s step) string {
	if s.Route == "" {
		return "-"
	}
	return s.Route
}

// joined returns the token of the hold to join, 0 for any.
func joined(p *Player, s step) int64 {
	if s.Of == 0 {
		return 0
	}
	return p.token(s, s.Of)
}

// voteAt is how many arguments of a script stand before the vote.
func voteAt(name scripts.Name) int {
	switch name {
	case scripts.Acquire:
		return 2
	case scripts.Release:
		return 1
	default:
		return 0
	}
}

// WithVote returns the arguments of a script with a vote among them. That of a single master is no last argument.
func WithVote[Arg any](name scripts.Name, vote Arg, args []Arg) []Arg {
	at := voteAt(name)
	if at > 0 && at == len(args) && fmt.Sprint(vote) == "0" {
		return args
	}
	return slices.Insert(slices.Clone(args), at, vote)
}

// WithoutVote returns the arguments of a script but for the vote.
func WithoutVote(name scripts.Name, args []string) []string {
	at := min(voteAt(name), len(args))
	return slices.Concat(args[:at], args[min(at+1, len(args)):])
}

// request returns the first argument of an acquire.
func (h *hold) request(life int64) string { return fmt.Sprintf("%s%8d%s", h.id, life, h.kind()) }

// kind returns the last character of an acquire's request.
func (h *hold) kind() string {
	if h.mode == "r" {
		switch {
		case h.block > 0:
			return "s"
		case h.named() != "":
			return "n"
		default:
			return "r"
		}
	}
	kind := flag(len(h.details()) > 64)
	if h.block > 0 {
		kind += 4
	} else if h.named() != "" {
		kind += 8
	}
	return fmt.Sprint(kind)
}

// readRequest reads the first argument of an acquire.
func readRequest(request, details string) (h hold, life int64) {
	h, life = readHold(request[:26], details), lifeIn(request)
	if want := h.request(life); request != want {
		panic(fmt.Sprintf("a client asks by %q, not %q", request, want))
	}
	return h, life
}

// lifeIn returns the TTL in the first argument of an acquire.
func lifeIn(request string) int64 { return number(strings.TrimLeft(request[26:34], " ")) }

// queueing returns how an acquire of acquire.lua queues, if it does: of several masters by hold id, else by arrival.
func queueing(several bool, order string) string {
	switch {
	case order == "0":
		return order
	case several:
		return "h"
	default:
		return "a"
	}
}
