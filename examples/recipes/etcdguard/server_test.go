package etcdguard_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/process"
	"github.com/seed74116694/fencelock/internal/test/scratch"
)

// etcd is the server of this run of tests, on sockets in a folder of its own. It starts with its first client.
type etcd struct {
	once    sync.Once
	err     error
	folder  *scratch.Folder
	process *process.Process
	client  *clientv3.Client
}

var server etcd

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

type suite struct{ *testing.M }

func (s suite) Run() int {
	defer server.stop()
	return s.M.Run()
}

var errMissing = errors.New("etcd is not here: apt-get install etcd-server")

// connect skips the test where there is no etcd, or fails it if CI=true.
func connect(t *testing.T) *clientv3.Client {
	t.Helper()
	server.once.Do(func() { server.err = server.start() })
	if errors.Is(server.err, errMissing) && os.Getenv("CI") != "true" {
		t.Skip(server.err)
	}
	if server.err != nil {
		t.Fatal(server.err)
	}
	return server.client
}

// startLimit bounds the start of the server, which a busy machine slows down.
const startLimit = 5 * time.Minute

func (e *etcd) start() error {
	program, err := exec.LookPath("etcd")
	if err != nil {
		return errMissing
	}
	if e.folder, err = scratch.New("etcd"); err != nil {
		return err
	}
	const clients, peers = "unix://clients:1", "unix://peers:1" // files in the folder
	command := exec.Command(program, "--data-dir=data", "--unsafe-no-fsync",
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	command.Dir = e.folder.Path()
	command.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH=arm64") // it asks for that where it is not amd64
	if e.process, err = process.Start(command); err != nil {
		return err
	}
	e.client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{"unix://" + filepath.Join(e.folder.Path(), "clients:1")},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		_, err := e.client.Get(ctx, "ready")
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-e.process.Ended:
			return errors.Join(errors.New("etcd ended"), e.process.Err, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (e *etcd) stop() {
	if e.client != nil {
		_ = e.client.Close()
	}
	if e.process != nil {
		e.process.End(syscall.SIGTERM)
	}
	if e.folder != nil {
		_ = e.folder.Close()
	}
}
