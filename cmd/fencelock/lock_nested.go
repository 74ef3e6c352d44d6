package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// variables are those of one lock that an outer fencelock holds.
type variables struct{ name, token, owner string }

// The names of the variables. With several locks they end with _1 and so on, and the first lock has both forms.
const variableOf, tokenOf, ownerOf = "FENCELOCK_NAME", "FENCELOCK_TOKEN", "FENCELOCK_OWNER"

// ofLocks matches the variables of locks in an environment, and no other one of the user, as FENCELOCK_NAMESPACE.
var ofLocks = regexp.MustCompile(`^(` + variableOf + `|` + tokenOf + `|` + ownerOf + `)(_\d+)?=`)

// outerLocks reads the locks of outer fencelocks from the environment.
func (l *lock) outerLocks() (locks []variables) {
	for end := ""; l.getenv(variableOf+end) != ""; end = fmt.Sprintf("_%d", len(locks)) {
		locks = append(locks, variables{l.getenv(variableOf + end), l.getenv(tokenOf + end), l.getenv(ownerOf + end)})
	}
	return locks
}

// environment returns the variables of the command: with the locks of this call, and after them the outer locks.
func (l *lock) environment() []string {
	var locks []variables
	for _, h := range l.holds {
		locks = append(locks, variables{h.Lease().Name(), h.Token().String(), h.Lease().Owner()})
	}
	for _, o := range l.outerLocks() {
		if !slices.ContainsFunc(locks, func(v variables) bool { return v.name == o.name }) {
			locks = append(locks, o)
		}
	}
	env := slices.DeleteFunc(os.Environ(), ofLocks.MatchString)
	for i, v := range append(locks[:1:1], locks...) {
		end := fmt.Sprintf("_%d", i)
		if i == 0 {
			end = ""
		}
		if i == 0 || len(locks) > 1 {
			env = append(env, variableOf+end+"="+v.name, tokenOf+end+"="+v.token, ownerOf+end+"="+v.owner)
		}
	}
	return env
}

// join takes the lock together with the outer fencelock. A server that does not answer is no exit.
func (v variables) join(
	ctx context.Context, mode rwlock.Mode,
	try func(context.Context, string, ...rwlock.LockOption) (*reentrant.Hold, error), opts []rwlock.LockOption,
) (*reentrant.Hold, error) {
	token, noToken := fencing.ParseToken(v.token)
	owner, noOwner := reentrant.ParseOwner(v.owner)
	if err := errs.Join(noToken, noOwner); err != nil {
		return nil, &exit{statusWrong, fmt.Sprintf("%s or %s of %s: %s", tokenOf, ownerOf, printable(v.name), plain(err))}
	}
	claim := fencing.NewContext(ctx, fencing.Fence{Resource: v.name, Token: token, Mode: mode})
	hold, err := try(reentrant.AsOwner(claim, owner), v.name, opts...)
	cause := ""
	switch {
	case errors.Is(err, rwlock.ErrLost):
		cause = "is not held: it was lost, its fencelock has ended, or -addr or -keys is another one here"
	case errors.Is(err, rwlock.ErrUpgrade):
		cause = "is held for reading (-shared), and is not to be had for writing inside"
	default:
		return hold, err
	}
	return nil, &exit{statusNotJoined, fmt.Sprintf("lock %s with token %v, which %s and %s name, %s", printable(v.name),
		token, variableOf, tokenOf, cause)}
}
