package chassis

import "context"

// Insert has an image in the CD drive from the next power-on: the machine that runs has the drive that it was started
// with.
func (c *Chassis) Insert(_ context.Context, image string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.medium = image
	return nil
}

// Eject takes it out, of the machine that runs, too.
func (c *Chassis) Eject(ctx context.Context) error {
	c.mu.Lock()
	plugged := c.plugged
	c.medium, c.plugged = "", false
	c.mu.Unlock()
	if v := c.running(); v != nil && plugged {
		return unlessGone(v, v.EjectCD(ctx))
	}
	return nil
}

// Medium is the image that is attached; empty for none.
func (c *Chassis) Medium() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.medium
}
