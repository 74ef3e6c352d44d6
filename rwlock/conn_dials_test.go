package rwlock_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A connection that could not be opened replaces none: what the locker knows of the server stays true.
func TestDialsCountsTheConnectionsThatWereOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		client, err := rwlock.Dial("", link.Option())
		require.NoError(t, err)
		defer client.Close()
		told := client.(interface {
			Dials() uint64
			LastDials() (newest, call string, next <-chan struct{})
		})
		open := func() error {
			c, giveBack := client.Dedicate()
			defer giveBack()
			return c.Do(t.Context(), c.B().Ping().Build()).Error()
		}
		before := told.Dials()
		_, _, next := told.LastDials()
		link.Refuse()
		require.Error(t, open())
		require.Equal(t, before, told.Dials())
		select {
		case <-next:
			require.Fail(t, "nothing was opened")
		default:
		}
		link.Restore()
		require.NoError(t, open())
		require.Equal(t, before+1, told.Dials())
		<-next
		newest, call, _ := told.LastDials()
		require.Empty(t, call, "no call has been dialled for")
		require.NotEmpty(t, newest)

		link.Cut()
		synctest.Wait()
		require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error())
		_, call, _ = told.LastDials()
		require.Equal(t, newest, call)
	})
}
