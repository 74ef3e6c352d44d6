package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// outerLock is a lock that an outer fencelock holds, as the environment says.
type outerLock struct {
	name  string
	token fencing.Token
	owner reentrant.Owner
}

// The variables of a lock. With several locks their names end with _1 and so on, and the first lock has both forms.
const variableOf, tokenOf, ownerOf = "FENCELOCK_NAME", "FENCELOCK_TOKEN", "FENCELOCK_OWNER"

// outerLocks reads the locks from the environment.
func outerLocks(getenv func(string) string) (locks []outerLock, err error) {
	for i, end := 0, ""; getenv(variableOf+end) != ""; {
		o := outerLock{name: getenv(variableOf + end)}
		if o.token, err = fencing.ParseToken(getenv(tokenOf + end)); err != nil {
			return nil, fmt.Errorf("%s: %w", tokenOf+end, err)
		}
		if o.owner, err = reentrant.ParseOwner(getenv(ownerOf + end)); err != nil {
			return nil, fmt.Errorf("%s: %s", ownerOf+end, plain(err))
		}
		locks = append(locks, o)
		i++
		end = fmt.Sprintf("_%d", i)
	}
	return locks, nil
}

// ofLocks matches the variables of locks in an environment, and no other one of the user, as FENCELOCK_NAMESPACE.
var ofLocks = regexp.MustCompile(`^(` + variableOf + `|` + tokenOf + `|` + ownerOf + `)(_\d+)?=`)

func (l *lock) outerLock(name string) *outerLock {
	if i := slices.IndexFunc(l.outer, func(o outerLock) bool { return o.name == name }); i >= 0 {
		return &l.outer[i]
	}
	return nil
}

// environment returns the variables of the command: with the locks of this call, and after them the outer locks.
func (l *lock) environment() []string {
	var locks []outerLock
	add := func(o outerLock) {
		if !slices.ContainsFunc(locks, func(other outerLock) bool { return other.name == o.name }) {
			locks = append(locks, o)
		}
	}
	for _, h := range l.holds {
		owner, _ := reentrant.ParseOwner(h.Lease().Owner())
		add(outerLock{h.Lease().Name(), h.Token(), owner})
	}
	for _, o := range l.outer {
		add(o)
	}
	env := slices.DeleteFunc(os.Environ(), ofLocks.MatchString)
	set := func(end string, o outerLock) {
		env = append(env, variableOf+end+"="+o.name, tokenOf+end+"="+o.token.String(), ownerOf+end+"="+o.owner.String())
	}
	set("", locks[0])
	for i, o := range locks {
		if len(locks) > 1 {
			set(fmt.Sprintf("_%d", i+1), o)
		}
	}
	return env
}

// notJoined is a lock of an outer fencelock that this one cannot join.
type notJoined struct {
	outerLock
	cause string
}

func (e *notJoined) Error() string {
	return fmt.Sprintf("lock %s with token %v, which FENCELOCK_NAME and FENCELOCK_TOKEN name, %s", printable(e.name),
		e.token, e.cause)
}

// notJoined says why a lock was not joined. A server that does not answer is no such failure.
func (o *outerLock) notJoined(err error) error {
	switch {
	case errors.Is(err, rwlock.ErrLost):
		return &notJoined{*o, "is not held: it was lost, its fencelock has ended, or -addr or -keys is another one here"}
	case errors.Is(err, rwlock.ErrUpgrade):
		return &notJoined{*o, "is held for reading (-shared), and is not to be had for writing inside"}
	}
	return err
}
