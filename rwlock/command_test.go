package rwlock_test

import (
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// command runs a command on the server itself, in a Cluster on the master of its key: a string, an int64, nil, or a list or map of these.
func (w *world) command(args ...string) any {
	w.t.Helper()
	if w.mini == nil {
		reply, err := w.real().Command(args...)
		require.NoError(w.t, err)
		return reply
	}
	client, err := rueidis.NewClient(w.newLink().Option())
	require.NoError(w.t, err)
	defer client.Close()
	reply, err := client.Do(w.ctx, client.B().Arbitrary(args...).Build()).ToAny()
	require.NoError(w.t, err)
	return reply
}
