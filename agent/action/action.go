// Package action lists the actions that agents carry out, and makes the executor of a command. The package of an
// executor declares its action; the list has one row for each.
package action

import (
	"context"
	"io"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/bmcpassword"
	"github.com/ingot-metal/ingot/agent/executor/cluster"
	"github.com/ingot-metal/ingot/agent/executor/join"
	"github.com/ingot-metal/ingot/agent/executor/power"
	"github.com/ingot-metal/ingot/agent/executor/provideraction"
	"github.com/ingot-metal/ingot/agent/executor/reconfig"
	"github.com/ingot-metal/ingot/agent/executor/script"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/internal/clock"
)

// Machine is a machine that commands are for: the agent's own, or one behind a provider.
type Machine struct {
	ID        string
	Host      host.Host
	Simulated bool
}

// Agent is what executors need of the agent that runs them.
type Agent struct {
	Clock clock.Clock
	// RebootSettle and RebootPoll: see packages reboot and kexec.
	RebootSettle, RebootPoll time.Duration
	Docs                     reconfig.Documents
	// Prove, Controllers and Moved: see package reconfig.
	Prove       func(ctx context.Context) error
	Controllers func(ctx context.Context) []netip.AddrPort
	Moved       func()
	// Probe: see package reboot.
	Probe func(ctx context.Context, t *fleetv1.ProbeTarget) (map[string]string, error)
	// Media: see package power.
	Media power.Insert

	// Own is the agent's machine. A site agent has none.
	Own Machine
	// Installer reports whether the agent runs in the installer.
	Installer bool
	// Boot is the base URL of the boot server, without a slash at its end.
	Boot string
	// NextSystem: see repave.DiskConfig.
	NextSystem func(ctx context.Context, spec *fleetv1.CommandSpec) (disks.NextSystem, error)
	// JoinMaterial and JoinDir: see package join.
	JoinMaterial func(ctx context.Context, commandID string) (join.Material, error)
	JoinDir      string
	// FetchBlob: see package kexec.
	FetchBlob func(ctx context.Context, sha256 string, w io.Writer) error

	// Site is what a site agent has that serves a site; nil for all others.
	Site *Site
}

// Site configures the executors that act for any machine of a site.
type Site struct {
	Scripts         script.Config
	Clusters        cluster.Config
	BMCPasswords    bmcpassword.Config
	ProviderActions provideraction.Config
}

// Action is an action and what makes its executors: one for each way to a machine, nil where there is none.
type Action struct {
	executor.Declaration
	// own is for the agent's own machine, and is asked before reached; it returns nil where this machine has no executor.
	own func(*Agent) executor.Executor
	// reached is for the agent's own machine and for one behind a provider.
	reached func(*Agent, Machine) executor.Executor
	// site is for any machine of the site.
	site func(*Site) executor.Executor
}

// All returns the actions, in the order of CommandSpec.action.
func All() []Action { return slices.Clone(all) }

// of returns the row of an action; for one that is not in the list, a row that destroys and has no executor.
func of(name protoreflect.Name) Action {
	i := slices.IndexFunc(all, func(a Action) bool { return a.Action == name })
	if i < 0 {
		return Action{}
	}
	return all[i]
}

// HarmOf returns the worst that a command may do to its machine. An action that is not declared destroys.
func HarmOf(spec *fleetv1.CommandSpec) executor.Harm { return of(executor.ActionOf(spec)).Harm }

// Own returns the executor of a command for the agent's own machine, or the refusal of one that has none.
func Own(a *Agent, spec *fleetv1.CommandSpec) (executor.Executor, *executor.Result) {
	row := of(executor.ActionOf(spec))
	if row.own != nil {
		if e := row.own(a); e != nil {
			return e, nil
		}
	}
	return row.on(a, a.Own)
}

// Reached returns the executor of a command for a machine behind a provider, or the refusal of one that has none.
func Reached(a *Agent, m Machine, spec *fleetv1.CommandSpec) (executor.Executor, *executor.Result) {
	return of(executor.ActionOf(spec)).on(a, m)
}

func (row Action) on(a *Agent, m Machine) (executor.Executor, *executor.Result) {
	if row.reached == nil {
		r := executor.Refused(baremetalv1.Reason_CAPABILITY_MISSING, "this agent has no executor for the action")
		return nil, &r
	}
	return row.reached(a, m), nil
}

// OfSite returns the executor of a command for any machine of the agent's site; nil where it has none.
func OfSite(a *Agent, spec *fleetv1.CommandSpec) executor.Executor {
	row := of(executor.ActionOf(spec))
	if row.site == nil || a.Site == nil {
		return nil
	}
	return row.site(a.Site)
}
