// Package provider is how a site agent acts on machines that have no agent of their own.
//
// A provider implements those of the small interfaces below that it can honour, and Base. What it doesn't
// implement it cannot do; nothing here falls back to something else. AsHost makes one machine of a provider
// look like a host.Host, so that the executors of commands are the same on both roads.
package provider

import (
	"context"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/inventory"
)

// Target is a machine as a provider needs to know it.
type Target struct {
	MachineID string
	// BMCEndpoint is in one of the forms that the provider takes; see package bmc.
	BMCEndpoint string
	// CredentialsRef names the credentials of the BMC; they themselves are never part of a target.
	CredentialsRef string
	// CredentialsVersion changes whenever they do; 0 means that it isn't known.
	CredentialsVersion int64
	// MACs of its network interfaces, lower case with colons.
	MACs []string
	// UUID and Serial are the system's own (SMBIOS), BIOS is set when its firmware is no UEFI; empty where unknown.
	UUID, Serial string
	BIOS         bool
	// Light is the wanted state of the identify light, LightOn or LightOff; empty: it is left alone.
	Light Light
}

// Base is what every provider has.
type Base interface {
	// Name is that of spec.provider.
	Name() string
	// Simulated reports whether its machines are simulated.
	Simulated() bool
}

// PowerState is whether a machine is on.
type PowerState string

// Power states.
const (
	PowerOn      PowerState = "on"
	PowerOff     PowerState = "off"
	PowerUnknown PowerState = "unknown"
	// PowerTurningOn and PowerTurningOff are of a machine on its way. They are not reported: a caller reads unknown.
	PowerTurningOn  PowerState = "turning-on"
	PowerTurningOff PowerState = "turning-off"
)

// Power switches machines. Returning without an error is a claim; PowerState reads back.
type Power interface {
	PowerState(ctx context.Context, t Target) (PowerState, error)
	// SetPower wants on or off. A machine that is already so is left alone.
	SetPower(ctx context.Context, t Target, e effect.Cause, want PowerState) error
}

// Reboot restarts machines. It returns once the reboot was accepted; proof is another boot id.
type Reboot interface {
	Reboot(ctx context.Context, t Target, e effect.Cause, mode boot.RebootMode) error
}

// Netboot chooses what a machine boots next, once.
type Netboot interface {
	BootNext(ctx context.Context, t Target) (boot.NextState, error)
	SetBootNext(ctx context.Context, t Target, e effect.Cause, b boot.Target) (boot.NextChange, error)
	ClearBootNext(ctx context.Context, t Target, e effect.Cause) error
}

// Imaging writes disks and reads them back.
type Imaging interface {
	DiskImage(ctx context.Context, t Target) (host.DiskImage, error)
	Repave(ctx context.Context, t Target, e effect.Cause, r host.RepaveRequest,
		progress func(host.RepaveProgress)) (host.RepaveEvidence, error)
}

// Configure changes the configuration of the running system.
type Configure interface {
	Hostname(ctx context.Context, t Target) (string, error)
	SetHostname(ctx context.Context, t Target, e effect.Cause, name string) error
	Firewall(ctx context.Context, t Target) (firewall.State, error)
	ApplyFirewall(ctx context.Context, t Target, e effect.Cause, p firewall.Policy) error
	RemoveFirewall(ctx context.Context, t Target, e effect.Cause) error
}

// Inspect reads what a machine is. Identity fails on a machine whose system isn't running.
type Inspect interface {
	Identity(ctx context.Context, t Target) (host.Identity, error)
	Inventory(ctx context.Context, t Target) (inventory.Document, error)
}

// Capabilities of a provider beside those of a host.
const (
	CapPower   = "power"
	CapInspect = "inspect"
)

// Capabilities returns the capabilities of p, sorted: names of host.Cap* and of those above.
func Capabilities(p Base) []string {
	caps := []string{} // in alphabetical order
	add := func(has bool, name string) {
		if has {
			caps = append(caps, name)
		}
	}
	_, inspect := p.(Inspect)
	_, netboot := p.(Netboot)
	_, power := p.(Power)
	_, reboot := p.(Reboot)
	_, configure := p.(Configure)
	_, imaging := p.(Imaging)
	add(inspect, CapInspect)
	add(netboot, host.CapNetboot)
	add(power, CapPower)
	add(reboot, host.CapReboot)
	add(configure, host.CapReconfig)
	add(imaging, host.CapRepave)
	return caps
}
