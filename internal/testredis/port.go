package testredis

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Servers listen below the ports that Linux and macOS give to outgoing connections (from 32768). Among those, a client
// that reconnects could take the port of a server between its Kill and its Restart, and even connect to itself there.
const (
	firstPort = 10_000
	lastPort  = 32_767
)

// freePort returns a port on which nobody listens now. Whoever starts a server there has to see that it is its own.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		var listener net.Listener
		listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no port from %d to %d is free: %w", firstPort, lastPort, err)
}
