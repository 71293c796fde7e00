package host

import (
	"context"
	"net/netip"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/rollback"
)

// Network is the part of a Host that configures its interfaces.
//
// Only what a network.Config names is ours. Files of others are never touched, and interfaces of others only as far as
// a bond of ours takes them.
type Network interface {
	// NetworkSupport returns the ErrNotWired refusal of a host that cannot apply the configuration, or nil. It changes
	// nothing.
	NetworkSupport(ctx context.Context, c network.Config) error
	// Network reads back how the host differs from the configuration. before is the state before a change of ours:
	// addresses and routes that came since without an order are foreign, and no difference.
	Network(ctx context.Context, c network.Config, before *network.SavedNetwork) (network.State, error)
	// SaveNetwork reads what RestoreNetwork needs to come back to now, once next was applied.
	SaveNetwork(ctx context.Context, next network.Config) (network.SavedNetwork, error)
	// ApplyNetwork replaces all of our settings by the configuration, and waits until the kernel shows it or ctx ends.
	ApplyNetwork(ctx context.Context, e effect.Cause, c network.Config) error
	// RestoreNetwork goes back to what was saved, and waits likewise.
	RestoreNetwork(ctx context.Context, e effect.Cause, s network.SavedNetwork) error
	// NetworkSource is the address of the configuration that a new connection to the destination must come from, to
	// prove it. It is the zero Addr where the way there does not lead over an interface with an address of ours.
	NetworkSource(ctx context.Context, c network.Config, to netip.Addr) (netip.Addr, error)
}

// Watchdog is a host that undoes an unproven change even when the process that made it is gone. A host without one is
// rolled back by its executor only.
type Watchdog interface {
	// Guard writes durably what to go back to, and makes sure that it happens at the deadline unless CommitGuard comes
	// first. It must return before the first change is made.
	Guard(ctx context.Context, g rollback.Guard) error
	// CommitGuard makes the change stay. It returns ErrGuardLost when the deadline came first: the change is undone or
	// about to be, and must count as failed.
	CommitGuard(ctx context.Context, commandID string) error
	// RollBackGuard goes back now. One that was rolled back already is left alone; one that is committed is an error.
	RollBackGuard(ctx context.Context, commandID string) error
	// Guarded reads the last guard, whatever has become of it. nil: there was none.
	Guarded(ctx context.Context) (*rollback.Guard, error)
}
