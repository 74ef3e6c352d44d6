package engine

// Close fails every waiter, releases every lease, waits at most the release timeout for the masters to confirm and at
// most as long again for the hooks, and returns when no goroutine of the engine is left. A second call returns no
// earlier. Close may be called from a hook. It waits for a dial that is under way even beyond that timeout.
func (e *Engine) Close() {
	if e.registry.close() {
		e.shutDown()
	} else {
		<-e.gone
	}
	// The hooks come last, since they get the releases. A hook may have called Close itself. Each call waits for the
	// hooks, so that no caller frees what they use while one runs.
	e.observers.relay.Close(e.cfg.ReleaseTimeout)
}

// shutDown does the work of the first Close. No acquisition begins any more.
func (e *Engine) shutDown() {
	e.tasks.end() // nothing new is started; what runs may still post
	for _, l := range e.registry.snapshot() {
		l.shutDown()
	}
	// The releases need the pipelines and the timers, so these end only after them.
	e.unconfirmed.await(e.cfg.ReleaseTimeout)
	e.endLife()
	close(e.stop)
	e.tasks.wait()
	close(e.gone)
}
