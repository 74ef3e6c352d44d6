package engine

import "time"

// Close fails every waiter, releases every lease, waits at most the release timeout for the masters to confirm and at
// most as long again for the hooks, and returns when no goroutine of the engine is left, a second call too. It may be
// called from a hook. A dial that is under way is waited for beyond that timeout.
func (e *Engine) Close() {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	e.mu.Unlock()
	if !first {
		<-e.gone
		return
	}
	for _, l := range e.snapshot() {
		l.shutDown()
	}
	e.awaitReleases()
	e.endLife()
	close(e.stop)
	e.tasks.Wait()
	close(e.gone)
	e.events.Close(e.cfg.ReleaseTimeout)
}

func (e *Engine) awaitReleases() {
	timeout := time.NewTimer(e.cfg.ReleaseTimeout)
	defer timeout.Stop()
	for e.pending.Load() > 0 {
		select {
		case <-e.settled:
		case <-timeout.C:
			return
		}
	}
}

// unreleased counts the releases that are not confirmed, for which Close waits.
func (e *Engine) unreleased(change int64) {
	if e.pending.Add(change) == 0 {
		select {
		case e.settled <- struct{}{}:
		default:
		}
	}
}
