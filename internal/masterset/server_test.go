package masterset_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/internal/masterset"
)

// name is how a client's list names a master.
type name string

func (n name) Addr() string { return string(n) }

// names returns a client's list of masters.
func names(addrs string) (list []masterset.Server) {
	for _, addr := range strings.Fields(addrs) {
		list = append(list, name(addr))
	}
	return list
}

// server is a master, with marker.lua in Go.
type server struct {
	marker  map[string]string
	run     string // '' if INFO is refused
	role    string
	cluster bool
	now     time.Duration // on its clock
	founded string        // rules of another client that marks it first
}

func (s *server) look() masterset.Answer {
	return s.call([]string{"look", "3", "", "", "", "", "0", "", ""})
}

type seatTerm struct {
	number float64
	run    string
}

func parseTerms(text string) (terms []seatTerm) {
	for _, part := range strings.Fields(text) {
		number, run, _ := strings.Cut(part, ":")
		n, _ := strconv.ParseFloat(number, 64)
		terms = append(terms, seatTerm{n, run})
	}
	return terms
}

func formatTerms(terms []seatTerm) string {
	var parts []string
	for _, t := range terms {
		parts = append(parts, fmt.Sprintf("%.0f:%s", t.number, t.run))
	}
	return strings.Join(parts, " ")
}

// seatAt returns the term at a seat of the list, or other if the list is shorter.
func seatAt(terms []seatTerm, seat int, other seatTerm) seatTerm {
	if seat < len(terms) {
		return terms[seat]
	}
	return other
}

// call runs the script.
func (s *server) call(args []string) masterset.Answer {
	if s.marker == nil {
		s.marker = make(map[string]string)
	}
	if args[0] == "single" {
		if s.marker["layout"] == "" {
			s.marker["layout"] = args[1]
		}
		return masterset.Answer{Fields: []string{
			s.micros(), s.marker["layout"], s.marker["rules"], s.marker["set"], "", "", "0", "", "", "", "", "", "",
		}}
	}
	member := s.marker["set"] != "" && (s.marker["set"] != args[8] || args[0] != "join")
	switch {
	case s.role == "slave":
	case !member && args[0] == "join":
		s.mark(args)
	case member:
		s.record(args)
	}
	cluster, until, role := "0", s.marker["until"], s.role
	if s.cluster {
		cluster = "1"
	}
	if until == "" {
		until = "0"
	}
	if role == "" {
		role = "master"
	}
	return masterset.Answer{Fields: []string{
		s.micros(), s.marker["layout"], s.marker["rules"], s.marker["set"], s.marker["seat"], s.marker["seats"], until,
		s.run, s.marker["id"], role, cluster, s.marker["run"], s.marker["terms"],
	}}
}

func (s *server) micros() string { return strconv.FormatInt(s.now.Microseconds(), 10) }

// mark gives the server a marker.
func (s *server) mark(args []string) {
	seat, _ := strconv.Atoi(args[4])
	quarantine, _ := strconv.ParseInt(args[6], 10, 64)
	terms, rules := parseTerms(args[7]), args[2]
	if s.founded != "" {
		rules = s.founded
	}
	last := seatAt(terms, seat, seatTerm{})
	for len(terms) < seat {
		terms = append(terms, seatTerm{})
	}
	if s.run != "" {
		terms = slices.Replace(terms, seat, min(seat+1, len(terms)), seatTerm{last.number + 1, s.run})
	}
	layout := s.marker["layout"]
	if layout == "" {
		layout = args[1]
	}
	maps.Copy(s.marker, map[string]string{
		"layout": layout, "rules": rules, "set": args[3], "seat": args[4], "seats": args[5],
		"terms": formatTerms(terms), "run": s.run,
		"until": strconv.FormatInt(s.now.Milliseconds()+quarantine, 10),
	})
	s.identify()
}

func (s *server) identify() {
	s.marker["id"] = s.marker["set"] + ":" + s.marker["run"] + ":" + s.marker["until"]
}

// record takes over the terms, and begins the next one.
func (s *server) record(args []string) {
	seat, _ := strconv.Atoi(s.marker["seat"])
	from, _ := strconv.ParseInt(s.marker["until"], 10, 64)
	quarantine, _ := strconv.ParseInt(args[6], 10, 64)
	mine, theirs := parseTerms(s.marker["terms"]), parseTerms(args[7])
	own := seatAt(mine, seat, seatTerm{0, s.marker["run"]})
	last := seatAt(theirs, seat, seatTerm{})
	if args[0] == "succeed" || args[0] == "note" {
		known := slices.Clone(mine)
		for i, t := range theirs {
			if i >= len(known) {
				known = append(known, t)
			} else if t.number > known[i].number {
				known[i] = t
			}
		}
		begin := func(number float64) {
			for len(known) <= seat {
				known = append(known, seatTerm{})
			}
			known[seat] = seatTerm{number, s.run}
			s.marker["run"] = s.run
		}
		over := last.number > own.number ||
			last.number == own.number && last.run != own.run && last.run != "" && own.run != ""
		switch {
		case args[0] == "succeed" && (s.marker["id"] == "" || s.run != "" && (s.marker["run"] != s.run || over)):
			from = s.now.Milliseconds() + quarantine
			begin(math.Max(own.number, last.number) + 1)
		case s.marker["run"] == "" && s.run != "":
			begin(math.Max(own.number, 1))
		}
		s.marker["terms"] = formatTerms(known)
	}
	from = min(from, s.now.Milliseconds()+quarantine)
	until := strconv.FormatInt(from, 10)
	if until != s.marker["until"] || s.marker["id"] == "" && s.marker["run"] == s.run {
		s.marker["until"] = until
		s.identify()
	}
}
