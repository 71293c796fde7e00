package localpg

// DropLock does to the lock what the end of the process does.
func DropLock(c *Cluster) error { return c.unlock() }
