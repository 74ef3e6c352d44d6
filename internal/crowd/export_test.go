package crowd

// Len is how many locks have a crowd.
func (c *Crowds[Member]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.locks)
}

// Len is how many locks are known.
func (c *Contentions) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.locks)
}
