package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/internal/test/process"
)

// Delayed is a proxy for a server that delays each direction, as a network does. It is a process of its own: the
// runtime of a program that is otherwise idle wakes it to the millisecond only, and the proxy's work is none of the
// client's.
type Delayed struct {
	Addr string
	proc *process.Process
}

// delayVariable tells a process that it is a proxy: the delay and the address of the server.
const delayVariable = "FENCELOCK_PEERS_DELAY"

// Delay starts a proxy for the server at that address. The program has to call ServeDelayed first.
func Delay(ctx context.Context, addr string, each time.Duration) (*Delayed, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	d, cmd := &Delayed{}, exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), fmt.Sprint(delayVariable, "=", each, " ", addr))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if d.proc, err = process.Start(cmd); err != nil {
		return nil, err
	}
	if d.Addr, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("delaying proxy: %w", err), d.Close())
	}
	d.Addr = strings.TrimSpace(d.Addr)
	return d, nil
}

// Close ends the proxy.
func (d *Delayed) Close() error {
	d.proc.Kill()
	return nil
}

// ServeDelayed is the proxy, in a process that Delay has started; it does not return there. Elsewhere it returns at
// once.
func ServeDelayed() {
	task := os.Getenv(delayVariable)
	if task == "" {
		return
	}
	if err := serveDelayed(task); err != nil {
		fmt.Fprintln(os.Stderr, "delaying proxy:", err)
	}
	os.Exit(1)
}

func serveDelayed(task string) error {
	each, target, _ := strings.Cut(task, " ")
	delay, err := time.ParseDuration(each)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	runtime.GOMAXPROCS(256) // a goroutine that sleeps in the kernel keeps its place for a while
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		server, err := net.Dial("tcp", target)
		if err != nil {
			return errors.Join(err, client.Close())
		}
		go carry(client, server, delay)
		go carry(server, client, delay)
	}
}

// packet is what arrived together.
type packet struct {
	data []byte
	due  time.Time
}

// carry passes what arrives on, each packet after the delay, until either side ends.
func carry(from, to net.Conn, delay time.Duration) {
	packets := make(chan packet, 1024)
	go func() {
		runtime.LockOSThread() // it sleeps more precisely than others
		sharpenSleep()
		for p := range packets {
			sleepUntil(p.due)
			_, _ = to.Write(p.data) // after an error the reader ends too
		}
		_ = to.Close()
	}()
	defer close(packets)
	for {
		data := make([]byte, 16<<10)
		n, err := from.Read(data)
		if err != nil {
			return
		}
		packets <- packet{data[:n], time.Now().Add(delay)}
	}
}
