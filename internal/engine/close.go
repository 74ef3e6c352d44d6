package engine

// Close fails every waiter, releases every lease, waits at most the release timeout for the masters to confirm and at
// most as long again for the hooks, and returns when no goroutine of the engine is left, a second call too. It may be
// called from a hook. A dial that is under way is waited for beyond that timeout.
func (e *Engine) Close() {
	first := e.registry.close()
	e.tasks.end()
	if !first {
		<-e.gone
		return
	}
	for _, l := range e.registry.snapshot() {
		l.shutDown()
	}
	e.unconfirmed.await(e.cfg.ReleaseTimeout)
	e.endLife()
	close(e.stop)
	e.tasks.wait()
	close(e.gone)
	e.observers.relay.Close(e.cfg.ReleaseTimeout)
}
