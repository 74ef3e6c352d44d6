package objectguard_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/objectguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
)

var errNoAnswer = errors.New("connection reset")

// A conflict that stays although nobody changes the object ends, after pauses that grow.
func TestStandingConflictEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		guard := objectguard.New(hooked{newMemory(), func(context.Context, string, objectguard.Object) error {
			at = append(at, time.Now())
			return objectguard.ErrConflict
		}})
		began := time.Now()
		err := guard.Write(t.Context(), write(5), "a", nil)
		require.ErrorIs(t, err, objectguard.ErrUnknown)
		require.NotErrorIs(t, err, objectguard.ErrConflict, "which would say that nothing was stored")
		require.ErrorContains(t, err, "10 attempts")
		require.Len(t, at, 10)
		require.InDelta(t, 1.9, time.Since(began).Seconds(), 0.7)
		for i := 2; i < len(at); i++ {
			last, pause := at[i-1].Sub(at[i-2]), at[i].Sub(at[i-1])
			require.LessOrEqual(t, pause, 640*time.Millisecond)
			if i < 7 {
				require.GreaterOrEqual(t, pause, last, "pauses double and are up to half as long by chance")
			}
		}
	})
}

// A gateway has sent the write twice. The store answers the second copy while it works on the first, and stores the
// first when the guard has given up.
func TestAnswerWhileTheFirstCopyIsUnderWay(t *testing.T) {
	forbidden := fmt.Errorf("%w: 403", objectguard.ErrRefused)
	for name, tt := range map[string]struct{ answers []error }{ // the last one stays until the context has ended
		"a conflict":               {[]error{objectguard.ErrConflict}},
		"a conflict, then refused": {[]error{objectguard.ErrConflict, forbidden}},
		"a doubt":                  {[]error{errNoAnswer}},
		"a doubt, then refused":    {[]error{errNoAnswer, forbidden}},
		"a doubt, then a conflict": {[]error{errNoAnswer, objectguard.ErrConflict}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bucket, puts := newMemory(), 0
				var first func()
				guard := objectguard.New(hooked{bucket, func(ctx context.Context, key string, o objectguard.Object) error {
					if puts++; puts == 1 {
						first = func() { require.NoError(t, bucket.PutIf(t.Context(), key, o)) }
					}
					return tt.answers[min(puts, len(tt.answers))-1]
				}})
				ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
				defer cancel()
				err := guard.Write(ctx, write(5), "a", []byte("stored"))
				require.ErrorIs(t, err, objectguard.ErrUnknown)
				require.NotErrorIs(t, err, objectguard.ErrConflict)
				require.NotErrorIs(t, err, objectguard.ErrRefused)
				first()
				got := expect.NoError(objectguard.New(bucket).Read(t.Context(), write(5), "a")).In(t)
				require.Equal(t, "stored", string(got))
			})
		})
	}
}

// As long as the object changes somebody succeeds, so the access goes on for as long as its context lets it.
func TestConflictsWithProgressGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, puts := newMemory(), 0
		rival := objectguard.New(bucket)
		guard := objectguard.New(hooked{bucket, func(ctx context.Context, key string, o objectguard.Object) error {
			if puts++; puts < 50 {
				require.NoError(t, rival.Write(ctx, write(5), key, []byte(strconv.Itoa(puts))))
			}
			return bucket.PutIf(ctx, key, o)
		}})
		require.NoError(t, guard.Write(t.Context(), write(5), "a", []byte("done")))
		require.Equal(t, 50, puts)
	})
}

func TestContextEndsTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := &fencing.LostError{Resource: lock, Token: 5, Reason: "expired"}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, lost)
		defer cancel()
		bucket := newMemory()
		rival := objectguard.New(bucket)
		guard := objectguard.New(hooked{bucket, func(ctx context.Context, key string, o objectguard.Object) error {
			require.NoError(t, rival.Write(ctx, write(5), key, nil))
			return bucket.PutIf(ctx, key, o)
		}})
		began := time.Now()
		err := guard.Write(ctx, write(5), "a", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, fencing.ErrLost, "why the context has ended")
		require.ErrorIs(t, err, objectguard.ErrConflict, "what was waited for")
		require.NotErrorIs(t, err, objectguard.ErrUnknown, "nothing was stored")
		require.Equal(t, 50*time.Millisecond, time.Since(began))
	})
}

// What the store refuses is not tried again and did not take place, unless an earlier attempt is in doubt.
func TestRefusedByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forbidden := fmt.Errorf("%w: 403", objectguard.ErrRefused)
		for _, overtaken := range []bool{false, true} {
			bucket, puts := newMemory(), 0
			rival := objectguard.New(bucket)
			guard := objectguard.New(hooked{bucket, func(ctx context.Context, key string, o objectguard.Object) error {
				if puts++; puts == 1 && overtaken {
					require.NoError(t, rival.Write(ctx, write(5), key, nil))
					return bucket.PutIf(ctx, key, o)
				}
				return forbidden
			}})
			err := guard.Write(t.Context(), write(5), "a", nil)
			require.Equal(t, overtaken, puts == 2, "%d calls", puts)
			require.ErrorIs(t, err, objectguard.ErrRefused)
			require.NotErrorIs(t, err, objectguard.ErrUnknown)
			require.ErrorContains(t, err, "403")
		}
	})
}

// A write without an answer: the same content goes again until the object tells, and change runs no second time.
func TestWriteWithoutAnAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		lost    int  // how many answers
		stored  bool // by the first call
		late    bool // the first call stores when the second one arrives
		unknown bool // the outcome
	}{
		"stored":                 {lost: 1, stored: true},
		"not stored":             {lost: 1},
		"not stored, often":      {lost: 9},
		"comes after all":        {lost: 1, late: true},
		"comes, nothing is told": {lost: 2, late: true},
		"never answered":         {lost: 1000, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bucket, puts, changes := newMemory(), 0, 0
				var first objectguard.Object
				guard := objectguard.New(hooked{bucket, func(ctx context.Context, key string, o objectguard.Object) error {
					puts++
					if puts == 1 {
						first = o
					}
					require.Equal(t, first, o, "the same content under the same condition")
					if puts == 1 && tt.stored || puts == 2 && tt.late {
						require.NoError(t, bucket.PutIf(ctx, key, first))
					}
					if puts <= tt.lost {
						return errNoAnswer
					}
					return bucket.PutIf(ctx, key, o)
				}})
				err := guard.Update(t.Context(), write(5), "a", func(old []byte) ([]byte, error) {
					changes++
					return append(old, 'x'), nil
				})
				require.Equal(t, 1, changes)
				if tt.unknown {
					require.ErrorIs(t, err, objectguard.ErrUnknown)
					require.ErrorIs(t, err, errNoAnswer)
					require.NotErrorIs(t, err, fencing.ErrStale)
					require.Equal(t, 10, puts)
					return
				}
				require.NoError(t, err)
				require.Equal(t, "x", string(expect.NoError(objectguard.New(bucket).Read(t.Context(), write(5), "a")).In(t)))
				require.Equal(t, 1, bucket.puts, "stored once")
			})
		})
	}
}

// The second answer is that to a copy, sent by a gateway without the first. Others may have come in between.
func TestAnswerToASecondCopy(t *testing.T) {
	for name, tt := range map[string]struct {
		stored  bool          // the first copy
		others  int           // come then
		token   fencing.Token // theirs
		unknown bool
		changes int
		absent  bool // there was no object at first
		stale   bool // the outcome
	}{
		"stored":                          {stored: true, changes: 1},
		"stored, a newer holder":          {stored: true, others: 1, token: 6, changes: 1},
		"stored, many of the same":        {stored: true, others: 31, token: 5, changes: 1},
		"stored, more of the same":        {stored: true, others: 32, token: 5, unknown: true, changes: 1},
		"stored, more of a newer holder":  {stored: true, others: 32, token: 6, unknown: true, changes: 1},
		"not stored, many of the same":    {others: 31, token: 5, changes: 2},
		"not stored, more of the same":    {others: 32, token: 5, unknown: true, changes: 1},
		"not stored, more of an older":    {others: 99, token: 4, changes: 2},
		"not stored, 409, nobody's there": {changes: 1},
		"not stored, a newer holder":      {others: 1, token: 6, stale: true, changes: 1},
		"the first, more of the same":     {absent: true, others: 32, token: 5, unknown: true, changes: 1},
		"the first, many of the same":     {absent: true, others: 31, token: 5, changes: 2},
	} {
		for _, answer := range []error{objectguard.ErrConflict, errNoAnswer} {
			t.Run(fmt.Sprint(name, ", ", answer), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					bucket, puts, changes := newMemory(), 0, 0
					rival := objectguard.New(bucket)
					if !tt.absent {
						require.NoError(t, rival.Write(t.Context(), write(4), "a", nil))
					}
					guard := objectguard.New(hooked{bucket, func(ctx context.Context, key string, o objectguard.Object) error {
						if puts++; puts > 1 {
							return bucket.PutIf(ctx, key, o)
						}
						if tt.stored {
							require.NoError(t, bucket.PutIf(ctx, key, o))
						}
						for range tt.others {
							require.NoError(t, rival.Write(ctx, write(tt.token), key, nil))
						}
						return answer
					}})
					err := guard.Update(t.Context(), write(5), "a", func(data []byte) ([]byte, error) {
						changes++
						return append(data, 'x'), nil
					})
					require.Equal(t, tt.changes, changes)
					require.Equal(t, tt.unknown, errors.Is(err, objectguard.ErrUnknown), "%v", err)
					require.Equal(t, tt.stale, errors.Is(err, fencing.ErrStale), "%v", err)
					require.Equal(t, tt.unknown || tt.stale, err != nil, "%v", err)
				})
			})
		}
	}
}

// What only raises a register may be done twice, so it never has to tell whether it was done.
func TestClaimThatManyHaveOvertaken(t *testing.T) {
	bucket, puts := newMemory(), 0
	rival := objectguard.New(bucket)
	guard := objectguard.New(hooked{bucket, func(ctx context.Context, key string, o objectguard.Object) error {
		if puts++; puts == 1 {
			for token := range fencing.Token(100) {
				require.NoError(t, rival.Claim(ctx, read(token+1), key))
			}
		}
		return bucket.PutIf(ctx, key, o)
	}})
	require.NoError(t, guard.Claim(t.Context(), read(101), "a"))
	require.Equal(t, 2, puts)
}
