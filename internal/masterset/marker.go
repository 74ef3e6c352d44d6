package masterset

import (
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// layout is the version of the data that the scripts keep in a lock's keys. Clients of different layouts refuse each
// other.
const layout = "2"

// purpose is what a call of marker.lua is for.
type purpose string

const (
	forSingle purpose = "single"  // of a master that decides alone
	look      purpose = "look"    // changes nothing except a run id that has changed
	birth     purpose = "birth"   // gives a marker at the first start of a set; nothing if the master has one
	rejoin    purpose = "return"  // gives a marker to a master that may have lost data
	note      purpose = "note"    // records terms
	succeed   purpose = "succeed" // begins the next term
)

// request is a call of marker.lua.
type request struct {
	purpose  purpose
	set      string
	seat     int
	seats    string // the addresses of all masters, by seat
	terms    terms  // of the seats, for the master to record
	instead  string // id of the set whose marker is replaced
	unmarked int64  // the server's time at which it had no marker, in microseconds
}

func (r *request) args(rules string, quarantine time.Duration) []string {
	return []string{
		string(r.purpose), layout, rules, r.set, strconv.Itoa(r.seat), r.seats,
		strconv.FormatInt(quarantine.Milliseconds(), 10), r.terms.text(), r.instead, strconv.FormatInt(r.unmarked, 10),
	}
}

// marker is what a master stores of itself. A master without a marker has empty fields, and one that decides alone has
// a layout only.
type marker struct {
	layout, rules, set, seat, seats, run, id string
	terms                                    terms
}

// reply is the answer of one master.
type reply struct {
	marker    marker
	run, role string // of the server that answers; its run id is empty if the client may not read it
	cluster   bool
	micros    int64         // the server's time
	abstains  time.Duration // until the end of its quarantine
	dials     uint64        // of the client's connections, before the marker was read
	err       error
}

// readReply parses the reply of marker.lua.
func readReply(r rueidis.RedisResult) reply {
	fields, err := r.ToArray()
	if err != nil {
		return reply{err: err}
	}
	if len(fields) != 13 {
		return reply{err: fmt.Errorf("malformed reply of %d fields", len(fields))}
	}
	text := func(i int) string {
		s, _ := fields[i].ToString()
		return s
	}
	micros, _ := fields[0].AsInt64()
	until, _ := fields[6].AsInt64()
	return reply{
		marker: marker{
			layout: text(1), rules: text(2), set: text(3), seat: text(4), seats: text(5),
			run: text(11), id: text(8), terms: readTerms(text(12)),
		},
		run: text(7), role: text(9), cluster: text(10) == "1", micros: micros,
		abstains: max(time.Duration(until)*time.Millisecond-time.Duration(micros)*time.Microsecond, 0),
	}
}
