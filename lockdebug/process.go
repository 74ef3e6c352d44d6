package lockdebug

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/seed74116694/fencelock/rwlock"
)

// Handler returns a page about the locks of this process, for the methods GET and HEAD. It refreshes itself, and works
// without scripts too. Query parameters:
//
//	format=json  the same as JSON: durations in milliseconds (_ms), times in RFC 3339; new fields may be added
//	q=TEXT       only rows that contain the text, in any case: in name, owner, hold, token, meta, reason or error
//	prefix=TEXT  only locks whose names begin with the text
//	waiting=1    only locks with waiters
//	sort=ORDER   the order of the locks: name, held (the longest first) or waiting (the most first)
//
// Without sort, locks with a row that is lost, late, broken or unreachable come first, then the longest wait, then the
// oldest holder. The first 500 leases and 500 waiters in the order of their locks are shown; the totals count them all.
// Every value is shown as text, with unprintable characters escaped, under a Content-Security-Policy that allows only
// the page's own script and style. Another method is answered 405, and bad parameters 400, with the reason as text.
//
// A request costs time in proportion to the number of leases and waiters, and some 200 bytes for each lock while it
// runs. It holds up no lock. After the Close of the Locker the page shows its last losses and counters.
func Handler(l *rwlock.Locker) http.Handler {
	return handler(l, func(_ context.Context, r request) (snapshot, error) { return processSnapshot(l, r), nil })
}

// processSnapshot is about the locks of this process. The leases come in no order: the locks are counted first, so that
// it is known which rows come first when these are chosen. A lock may come between the two.
func processSnapshot(l *rwlock.Locker, r request) snapshot {
	now, found, locks := time.Now(), gather(r), map[string]*group{}
	for lease := range l.Leases() {
		if !strings.HasPrefix(lease.Name, r.Prefix) {
			continue
		}
		if locks[lease.Name] == nil {
			locks[lease.Name] = newGroup(lease.Name)
		}
		locks[lease.Name].count(shown{LeaseState: lease})
	}
	for lease := range l.Leases() {
		if of := locks[lease.Name]; of != nil {
			found.add(shown{LeaseState: lease, of: of})
		}
	}
	s := found.snapshot(now)
	s.Process, s.StatRows = processName(), statRows("", reflect.ValueOf(l.Stats()))
	for _, row := range s.StatRows {
		s.Stats[row.Name] = row.Value
	}
	wanted := strings.ToLower(r.Search)
	for _, loss := range l.Losses() {
		if row := newLossRow(loss, now); strings.HasPrefix(row.Name, r.Prefix) && containsAny(wanted, row.Name, row.Mode,
			row.Token.String(), row.Owner, row.Hold, row.Meta, row.Error) {
			s.Losses = append(s.Losses, row)
		}
	}
	return s
}

func processName() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

func newLossRow(l rwlock.Loss, now time.Time) lossRow {
	return lossRow{
		At: l.At, AgoMS: millis(now.Sub(l.At)), Name: l.Name, Mode: l.Mode.String(), Token: l.Err.Token, Owner: l.Owner,
		Hold: l.Hold, Meta: l.Meta, Reason: string(l.Err.Reason), Error: l.Err.Error(),
	}
}

// statRows returns the counters of a struct by their names, also of the structs and maps in it: a counter that is added
// to the Stats of a Locker is shown without a change here.
func statRows(prefix string, of reflect.Value) (rows []statRow) {
	switch of.Kind() {
	case reflect.Struct:
		for i := range of.NumField() {
			if !of.Type().Field(i).IsExported() {
				continue
			}
			rows = append(rows, statRows(joinedName(prefix, of.Type().Field(i).Name), of.Field(i))...)
		}
	case reflect.Map:
		for _, key := range of.MapKeys() {
			rows = append(rows, statRows(joinedName(prefix, fmt.Sprint(key)), of.MapIndex(key))...)
		}
		slices.SortFunc(rows, func(a, b statRow) int { return cmp.Compare(a.Name, b.Name) })
	default:
		rows = append(rows, statRow{prefix, of.Interface()})
	}
	return rows
}

// joinedName returns the name of a counter in the style of JSON: HandedOff is handed_off.
func joinedName(prefix, name string) string {
	var b strings.Builder
	b.WriteString(prefix)
	for i, r := range name {
		switch {
		case unicode.IsUpper(r) || i == 0:
			if b.Len() > 0 {
				b.WriteByte('_')
			}
			b.WriteRune(unicode.ToLower(r))
		case r == ' ':
			b.WriteByte('_')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
