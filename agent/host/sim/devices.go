package sim

import (
	"context"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/effect"
)

// Accelerators are none: a simulated machine has no devices of its own.
func (m *Machine) Accelerators() ([]host.Accelerator, error) { return nil, nil }

// ResetDevice refuses: there is nothing to reset.
func (m *Machine) ResetDevice(context.Context, effect.Cause, host.Accelerator) (string, error) {
	return "", host.ErrNoReset
}
