package rwlock_test

import (
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// command runs a command on the server itself: a string, an int64, nil, or a list or map of these.
func (w *world) command(args ...string) any {
	w.t.Helper()
	if w.server != nil {
		reply, err := w.server.Command(args...)
		require.NoError(w.t, err)
		return reply
	}
	if w.operator == nil {
		var err error
		w.operator, err = rueidis.NewClient(w.newLink().Option())
		require.NoError(w.t, err)
		w.t.Cleanup(w.operator.Close)
	}
	reply, err := w.operator.Do(w.ctx, w.operator.B().Arbitrary(args...).Build()).ToAny()
	require.NoError(w.t, err)
	return reply
}
