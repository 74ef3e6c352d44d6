package engine

import "sync"

// tasks tracks the goroutines of an engine that Close waits for.
type tasks struct {
	mu    sync.Mutex // guards ended, and serializes spawn and end
	ended bool
	group sync.WaitGroup
}

// spawn runs the task in its own goroutine. After end it starts none and returns false.
func (t *tasks) spawn(task func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.group.Go(task)
	}
	return !t.ended
}

// end makes spawn start no further tasks. Waiting for the group is invalid while tasks may still be added to it.
func (t *tasks) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
}

// wait returns when every task has returned. It is called after end.
func (t *tasks) wait() { t.group.Wait() }
