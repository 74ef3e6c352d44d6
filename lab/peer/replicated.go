package peer

import (
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// replicaTimeout is how long a grant may wait for its replicas.
const replicaTimeout = time.Second

// Replicated returns this library as a library with grants that count after n replicas have them.
func Replicated(n int) Library {
	return Library{
		Name: fmt.Sprintf("%s, %d replica", Ours, n), Queues: true, Keeps: true, Key: ourKey,
		Open: func(o Options) (Peer, error) { return Open(o, rwlock.WithReplicas(n, replicaTimeout)) },
	}
}
