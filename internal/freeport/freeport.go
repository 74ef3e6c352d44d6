// Package freeport finds ports for the servers that tests and measurements start. Only these import it.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// First and Last bound the result of Find. They are below the ports that Linux and macOS assign to outgoing
// connections, from 32768. Within that range, a reconnecting client could take the port of a server that is down for a
// moment, and even connect to itself there.
const (
	First = 10_000
	Last  = 32_767
)

// attempts bounds how many ports Find tries: a machine on which all of them are taken has a fault.
const attempts = 100

// Find returns a port of 127.0.0.1 on which no process listens now. Another process may take the port before the
// caller's server does. The caller has to try another port if its server fails to start, and to verify that the server
// that answers is its own.
func Find() (int, error) {
	var err error
	for range attempts {
		port := First + rand.IntN(Last-First+1)
		var listener net.Listener
		listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no port from %d to %d is free: %w", First, Last, err)
}
