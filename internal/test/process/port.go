package process

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// FirstPort and LastPort bound the result of FindPort. They are below the ports that Linux and macOS assign to outgoing
// connections, from 32768. Within that range, a reconnecting client could take the port of a server that is down for a
// moment, and even connect to itself there.
const (
	FirstPort = 10_000
	LastPort  = 32_767
)

// attempts bounds how many ports FindPort tries: a machine on which all of them are taken has a fault.
const attempts = 100

// Port is a reserved port of 127.0.0.1: until Close, no call of FindPort in any process returns it. So a server can be
// stopped and started again on it.
type Port struct {
	Number      int
	reservation net.PacketConn // of the UDP port with the same number, which no server uses
}

// FindPort reserves a port of 127.0.0.1 on which no process listens now. A process that does not use FindPort may take
// the port before the caller's server does. The caller has to try another port if its server fails to start, and to
// verify that the server that answers is its own.
func FindPort() (*Port, error) {
	var err error
	for range attempts {
		port := FirstPort + rand.IntN(LastPort-FirstPort+1)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		var reservation net.PacketConn
		if reservation, err = net.ListenPacket("udp", addr); err != nil {
			continue
		}
		var listener net.Listener
		if listener, err = net.Listen("tcp", addr); err == nil {
			return &Port{port, reservation}, listener.Close()
		}
		_ = reservation.Close()
	}
	return nil, fmt.Errorf("no port from %d to %d is free: %w", FirstPort, LastPort, err)
}

// Close ends the reservation.
func (p *Port) Close() { _ = p.reservation.Close() }
