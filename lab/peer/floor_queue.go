package peer

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/rueidis"
)

// floorQueue is a bare queue: a release passes the lock to the first in line and notifies its client. A waiter that
// gives up stays in line, so a run ends for all at once.
type floorQueue struct {
	*floor
	channel     string
	subscriber  rueidis.DedicatedClient
	giveBack    func()
	mu          sync.Mutex
	waiting     map[string]chan struct{} // by hold id
	unsubscribe <-chan error             // ends with the subscription
}

var (
	setOrQueue = rueidis.NewLuaScript(`if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 0`)
	passOn = rueidis.NewLuaScript(`if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local next = redis.call('LPOP', KEYS[2])
if not next then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], next, 'PX', ARGV[2])
redis.call('PUBLISH', string.match(next, '^(.*)/'), next)
return 1`)
)

func openFloorQueue(o Options) (Peer, error) {
	f, err := openFloor(o)
	if err != nil {
		return nil, err
	}
	q := &floorQueue{floor: f, waiting: make(map[string]chan struct{})}
	q.channel = fmt.Sprintf("queue-%p", q)
	q.subscriber, q.giveBack = f.clients[0].Dedicate()
	q.unsubscribe = q.subscriber.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { q.wake(m.Message) },
	})
	err = q.subscriber.Do(context.Background(), q.subscriber.B().Subscribe().Channel(q.channel).Build()).Error()
	if err != nil {
		_ = q.Close() // the cause is known
		return nil, err
	}
	return q, nil
}

func (q *floorQueue) wake(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if granted := q.waiting[id]; granted != nil {
		close(granted)
		delete(q.waiting, id)
	}
}

// Lock registers for the message before it asks: the answer may come after the message.
func (q *floorQueue) Lock(ctx context.Context, name string) (Hold, error) {
	id, granted := q.channel+"/"+q.id(), make(chan struct{})
	q.mu.Lock()
	q.waiting[id] = granted
	q.mu.Unlock()
	hold := &queueHold{q, name, id}
	at, err := setOrQueue.Exec(q.context(ctx), q.clients[0], []string{name, name + ":queue"}, []string{id, q.px}).AsInt64()
	if err != nil {
		q.wake(id)
		return nil, err
	}
	if at == 1 {
		q.wake(id)
		return hold, nil
	}
	select {
	case <-granted:
		return hold, nil
	case <-ctx.Done():
		q.wake(id)
		return nil, ctx.Err()
	}
}

func (q *floorQueue) Close() error {
	q.giveBack()
	<-q.unsubscribe
	return q.floor.Close()
}

type queueHold struct {
	queue    *floorQueue
	name, id string
}

func (h *queueHold) Release(ctx context.Context) error {
	q := h.queue
	return passOn.Exec(q.context(ctx), q.clients[0], []string{h.name, h.name + ":queue"}, []string{h.id, q.px}).Error()
}
