package process_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// No outgoing connection gets one of these, and no other server while one is reserved.
func TestPortsAreReservedBelowThoseOfOutgoingConnections(t *testing.T) {
	found := map[int]bool{}
	for range 400 {
		port := expect.NoError(process.FindPort()).In(t)
		t.Cleanup(port.Close)
		require.GreaterOrEqual(t, port.Number, process.FirstPort)
		require.LessOrEqual(t, port.Number, process.LastPort)
		require.False(t, found[port.Number], "found twice")
		found[port.Number] = true
		listener := expect.NoError(net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port.Number))).In(t, "free for the server")
		require.NoError(t, listener.Close())
	}
	require.Less(t, process.LastPort, 32768)
}
