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
	join      purpose = "join"    // gives a marker to a master without one, or with the one that it replaces
	note      purpose = "note"    // records terms
	succeed   purpose = "succeed" // begins the next term
)

// request is a call of marker.lua.
type request struct {
	purpose purpose
	set     string
	seat    int
	seats   string // the addresses of all masters, by seat
	terms   terms  // of the seats, for the master to record
	instead string // id of the set whose marker is replaced
}

func (r *request) args(rules string, quarantine time.Duration) []string {
	return []string{
		string(r.purpose), layout, rules, r.set, strconv.Itoa(r.seat), r.seats,
		strconv.FormatInt(quarantine.Milliseconds(), 10), r.terms.text(), r.instead,
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

// readReply reads the reply of marker.lua.
func readReply(r rueidis.RedisResult) reply {
	messages, err := r.ToArray()
	if err != nil {
		return reply{err: err}
	}
	fields := make([]string, len(messages))
	for i := range messages {
		if n, err := messages[i].ToInt64(); err == nil {
			fields[i] = strconv.FormatInt(n, 10)
		} else {
			fields[i], _ = messages[i].ToString()
		}
	}
	return newReply(fields)
}

// newReply returns the reply with these fields. A number that is malformed counts as 0.
func newReply(fields []string) reply {
	if len(fields) != 13 {
		return reply{err: fmt.Errorf("malformed reply of %d fields", len(fields))}
	}
	micros, _ := strconv.ParseInt(fields[0], 10, 64)
	until, _ := strconv.ParseInt(fields[6], 10, 64)
	left := max(until, 0)*1000 - micros // microseconds
	return reply{
		marker: marker{
			layout: fields[1], rules: fields[2], set: fields[3], seat: fields[4], seats: fields[5],
			run: fields[11], id: fields[8], terms: readTerms(fields[12]),
		},
		run: fields[7], role: fields[9], cluster: fields[10] == "1", micros: micros,
		abstains: time.Duration(max(left, 0)) * time.Microsecond,
	}
}
