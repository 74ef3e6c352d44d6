package wire

import (
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

type Waiter struct {
	Owner, Hold, Meta string
	Mode              fencing.Mode
	Waited            time.Duration
}

// InspectReply is the reply of inspect.lua, which has no arguments: a lock as one master shows it.
type InspectReply struct {
	Micros  int64 // the server's time
	Token   fencing.Token
	Holders []Holder
	Waiters []Waiter
}

func ReadInspect(result rueidis.RedisResult) (InspectReply, error) {
	f := read(result)
	reply := InspectReply{Micros: f.number(aTime)}
	_ = f.text()                                      // the mode of the first holder
	reply.Token = fencing.Token(f.number(anyCounter)) // also a counter that is past the largest token
	for _, h := range f.rows() {
		holder := Holder{
			Hold: h.text(0), Owner: h.text(1), Mode: h.mode(2), Count: int(h.number(4)),
			Remaining: h.millis(5), Held: h.millis(6), Meta: h.text(8),
			Shared: h.number(9) == 1, Ended: h.text(3) == string(noRoute), Token: fencing.Token(max(h.number(7), 0)),
			Broken: h.number(10) == 1, Detached: h.number(11) == 1,
		}
		if by := readBreaker(h.text(12)); by != nil {
			holder.BrokenBy, holder.BrokenWhy = by.Who, by.Why
		}
		reply.Holders = append(reply.Holders, holder)
	}
	for _, w := range f.rows() {
		reply.Waiters = append(reply.Waiters, Waiter{
			Hold: w.text(0), Owner: w.text(1), Mode: w.mode(2), Waited: w.millis(4), Meta: w.text(5),
		})
	}
	return end(&f, reply)
}

func (r *reader) rows() []row {
	if r.err != nil || len(r.list) == 0 {
		r.missing()
		return nil
	}
	list, err := r.list[0].ToArray()
	r.list = r.list[1:]
	r.more, r.read = len(r.list) > 0, r.read+1
	if err != nil {
		r.malformed("list")
	}
	rows := make([]row, len(list))
	for i := range list {
		rows[i], _ = list[i].ToArray()
	}
	return rows
}

// row has the fields of one holder or waiter. A field that is missing or has another type is empty: a record of the
// lock that this library did not write may have no value there.
type row []rueidis.RedisMessage

func (r row) text(i int) string {
	if i >= len(r) || !r[i].IsString() {
		return ""
	}
	s, _ := r[i].ToString()
	return s
}

func (r row) number(i int) int64 {
	if i >= len(r) {
		return 0
	}
	n, _ := r[i].ToInt64()
	return n
}

// millis reads an elapsed or a remaining time, which is negative if the server's clock was set back since.
func (r row) millis(i int) time.Duration {
	return time.Duration(min(max(r.number(i), 0), maxMillis)) * time.Millisecond
}

func (r row) mode(i int) fencing.Mode {
	m, _ := readMode(r.text(i))
	return m
}
