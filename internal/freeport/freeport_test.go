package freeport_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/freeport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// No outgoing connection gets one of these.
func TestPortsAreBelowThoseOfOutgoingConnections(t *testing.T) {
	for range 100 {
		port, err := freeport.Find()
		require.NoError(t, err)
		require.GreaterOrEqual(t, port, freeport.First)
		require.LessOrEqual(t, port, freeport.Last)
	}
	require.Less(t, freeport.Last, 32768)
}
