package harness

import "testing"

// NewDeployed starts the agent of a system that was deployed to a registered machine, with the bundle that it was
// given.
func (c *Client) NewDeployed(t testing.TB, o MachineOptions, bundle string) *Machine {
	t.Helper()
	m := c.machine(t, o)
	m.Config.Bundle = bundle
	m.Start()
	return m
}
