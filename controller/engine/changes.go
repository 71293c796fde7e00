package engine

import "sync"

// changes notifies streams of this controller, and other controllers, of what is committed.
type changes struct {
	// told wakes the announcement to other controllers.
	told signal

	mu      sync.Mutex
	changed chan struct{}
}

func newChanges(told signal) *changes { return &changes{told: told, changed: make(chan struct{})} }

// Changed is closed at the next change that this controller commits, or hears of.
func (c *changes) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// publish notifies those who wait for a change, here and on other controllers.
func (c *changes) publish() {
	c.wake()
	c.told.fire()
}

// wake notifies those who wait for a change here.
func (c *changes) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}
