package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/seed74116694/fencelock/internal/test/process"
	"github.com/seed74116694/fencelock/internal/test/scratch"
)

// provider is Galera's library, as Debian installs it with mariadb-server.
const provider = "/usr/lib/galera/libgalera_smm.so"

// cluster has two nodes of MariaDB that both take writes.
type cluster [2]*server

// Galera returns an empty database, as both nodes of a cluster show it.
func (s *Servers) Galera(tb testing.TB) (nodes [2]*sql.DB) {
	tb.Helper()
	in, err := s.folder.get(newFolder)
	if err != nil {
		tb.Fatal(err)
	}
	running, err := s.galera.get(func() (cluster, error) { return startCluster(in) })
	if missing := (*missingError)(nil); errors.As(err, &missing) && os.Getenv("CI") != "true" {
		tb.Skip("NOT TESTED: several servers that take writes. ", missing)
	}
	if err != nil {
		tb.Fatal(err)
	}
	name := fmt.Sprintf("test%d", s.databases.Add(1))
	if _, err := running[0].admin.ExecContext(context.Background(), "CREATE DATABASE "+name); err != nil {
		tb.Fatal(err)
	}
	for i, node := range running {
		nodes[i] = Open(tb, node.driver, node.dsn(name))
	}
	return nodes
}

func startCluster(in *scratch.Folder) (c cluster, err error) {
	join := ""
	for i := range c {
		var ports [3]int
		for j := range ports {
			port, err := process.FindPort()
			if err != nil {
				return c, err
			}
			defer port.Close()
			ports[j] = port.Number
		}
		if c[i], err = galera(ports, join).start(in); err != nil {
			return c, err
		}
		join = fmt.Sprintf("127.0.0.1:%d", ports[0])
	}
	return c, nil
}

// galera is a node that begins a cluster, or joins the one at an address. Its ports are those of the cluster's messages
// and of the two ways in which a node gets the others' data.
func galera(ports [3]int, join string) kind {
	k := mariadb
	k.name, k.install = "Galera", "apt-get install mariadb-server galera-4 rsync"
	k.isOurs = func(string) bool {
		_, err := os.Stat(provider)
		return err == nil
	}
	if join != "" { // it gets the data of the other node
		k.prepare = func(_, dir string) *exec.Cmd { return exec.Command("mkdir", filepath.Join(dir, "data")) }
	}
	k.serve = func(program, dir string, port int) *exec.Cmd {
		command := mariadb.serve(program, dir, port)
		command.Args = append(command.Args, "--wsrep-on=ON", "--wsrep-provider="+provider, "--binlog-format=ROW",
			"--innodb-autoinc-lock-mode=2", "--wsrep-cluster-address=gcomm://"+join, "--wsrep-node-address=127.0.0.1",
			"--wsrep-sst-method=rsync", fmt.Sprintf("--wsrep-sst-receive-address=127.0.0.1:%d", ports[1]),
			fmt.Sprintf("--wsrep-provider-options=base_host=127.0.0.1;base_port=%d;gmcast.listen_addr=tcp://127.0.0.1:%d;"+
				"ist.recv_addr=127.0.0.1:%d;gcache.size=16M;pc.recovery=false", ports[0], ports[0], ports[2]))
		return command
	}
	// It has no row, and fails, until the node has the data.
	k.dataDir = `SELECT @@datadir FROM information_schema.global_status
WHERE variable_name = 'WSREP_LOCAL_STATE_COMMENT' AND variable_value = 'Synced'`
	return k
}
