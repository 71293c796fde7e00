package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/action"
	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/enroll"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/provideraction"
	"github.com/ingot-metal/ingot/agent/executor/reconfig"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/session"
	"github.com/ingot-metal/ingot/agent/site"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// ErrNoToken is returned when the agent is not enrolled and has nothing to enrol with.
var ErrNoToken = errors.New("not enrolled, and no bootstrap token is given")

// life is what exists for one boot.
type life struct {
	a           *Agent
	store       *state.Store
	host        host.Host
	ident       host.Identity
	who         state.Identity
	started     time.Duration
	image       sync.Once
	imageDigest string
	// inventoryDue asks for an inventory before its next turn.
	inventoryDue chan struct{}

	dispatcher *dispatch.Dispatcher
	runner     *session.Runner
	controller controllerClient
	// providers and site are for the site role; site is nil when there is nothing to serve.
	providers site.Providers
	site      *siteWork
}

func (a *Agent) newLife(ctx context.Context, h host.Host, store *state.Store) (*life, error) {
	l := &life{a: a, store: store, host: h, started: a.cfg.Boottime(), providers: maps.Clone(a.cfg.Providers),
		inventoryDue: make(chan struct{}, 1)}
	var err error
	if l.ident, err = h.Identity(ctx); err != nil {
		return nil, fmt.Errorf("identify the machine: %w", err)
	}
	if l.who, err = l.enrolled(ctx); err != nil {
		return nil, err
	}
	if err := store.SawControllerTime(ctx, l.who.TokenIssuedAt); err != nil && !errors.Is(err, state.ErrStorageFull) {
		return nil, err
	}
	log := a.cfg.Log.With("agent_id", l.who.AgentID)
	a.simulated = l.simulated()
	if a.simulated {
		log = log.With("simulated", true)
	}
	begun, err := state.OpenBegun(ctx, store, a.cfg.RunDir, l.ident.BootID, log)
	if err != nil {
		return nil, err
	}
	l.dispatcher = dispatch.New(dispatch.Config{
		Store:       begun,
		Resolve:     l.resolve,
		Harm:        action.HarmOf,
		AgentID:     l.who.AgentID,
		BootID:      l.ident.BootID,
		Simulated:   l.simulated(),
		Log:         log,
		Clock:       a.cfg.Clock,
		Boottime:    a.cfg.Boottime,
		ResendEvery: a.cfg.ResendEvery,
		GrantWait:   a.cfg.GrantWait,
		Quiet:       a.cfg.Quiet,
		Traces:      a.cfg.Traces,
	})
	l.runner = session.New(session.Config{
		Store: store, Dir: state.Dir(a.cfg.StateDir), Dispatcher: l.dispatcher, Addresses: l.addresses, Dial: a.cfg.Dial,
		Hello: l.hello, Heartbeat: l.heartbeat, Reenroll: l.reenroll, Welcomed: l.welcomed, Ended: l.a.cfg.Disconnected,
		OneCertificate: l.who.Role == RoleInstaller, Discover: l.discoverBMCs, BuildTime: a.cfg.BuildTime,
		Clock: a.cfg.Clock, Log: log,
	})
	l.controller = controllerClient{l.runner.Call}
	if l.isSite() {
		return l, l.setUpSite(log)
	}
	if err := reconfig.New(l.reconfigConfig()).Restore(ctx); err != nil {
		log.Error("committed configuration not restored", "error", err)
	}
	return l, nil
}

// run starts everything that a boot consists of.
func (l *life) run(group *task.Group) {
	if l.site != nil {
		l.runSite(group)
		return
	}
	group.Go("dispatcher", l.dispatcher.Run)
	group.Go("session", l.runSession)
	group.Go("inventory", l.reportInventory)
	group.Go("findings", l.reportFindings)
	group.Go("rollback", l.rollBack)
}

// runSession returns an error in any case: without a session there is no agent.
func (l *life) runSession(ctx context.Context) error {
	err := l.runner.Run(ctx)
	if err == nil {
		err = ctx.Err()
	}
	return err
}

func (l *life) isSite() bool { return l.who.Role == RoleSite }

func (l *life) simulated() bool {
	return l.ident.Simulated || l.isSite() && l.providers.Simulated()
}

// enrolled returns the identity, with the help of the token if there is none yet.
func (l *life) enrolled(ctx context.Context) (state.Identity, error) {
	dir := state.Dir(l.a.cfg.StateDir)
	who, err := dir.Identity()
	if !errors.Is(err, state.ErrNotEnrolled) {
		return who, err
	}
	if l.a.cfg.Bundle == "" {
		return who, ErrNoToken
	}
	bundle, err := pki.ParseBundle(l.a.cfg.Bundle)
	if err != nil {
		return who, err
	}
	return l.a.Enroll(ctx, l.host, l.ident, bundle)
}

// Enroll enrols the machine with the token. The identity is durable when it returns.
func (a *Agent) Enroll(
	ctx context.Context, h host.Host, ident host.Identity, bundle pki.Bundle,
) (state.Identity, error) {
	m := enroll.Machine{
		Region: a.cfg.Region, Provider: a.cfg.Provider, HardwareFingerprint: ident.HardwareFingerprint,
		BootID: ident.BootID, Version: a.cfg.Version,
	}
	if doc, err := h.Inventory(ctx); err == nil {
		m.Serial = doc.System.Serial
		for _, n := range doc.NICs {
			m.MACs = append(m.MACs, n.MAC)
		}
	} else {
		a.cfg.Log.Warn("enrolling without serial and MAC addresses", "error", err)
	}
	who, err := enroll.Enroll(ctx, a.enrollConfig(), bundle, m)
	if err == nil {
		a.cfg.Log.Info("enrolled", "agent_id", who.AgentID, "machine_id", who.MachineID, "role", who.Role, "simulated",
			ident.Simulated)
	}
	return who, err
}

func (a *Agent) enrollConfig() enroll.Config {
	return enroll.Config{
		Dir: state.Dir(a.cfg.StateDir), Dial: a.cfg.Dial, Clock: a.cfg.Clock, Log: a.cfg.Log,
		Known: []time.Time{a.cfg.BuildTime},
	}
}

func (l *life) reenroll(ctx context.Context) error {
	meta, err := l.store.Meta(ctx)
	if err != nil {
		return err
	}
	cfg := l.a.enrollConfig()
	cfg.Known = append(cfg.Known, meta.ControllerTime)
	return enroll.Reenroll(ctx, cfg)
}

func (l *life) addresses() ([]string, error) {
	if len(l.a.cfg.Addresses) > 0 {
		return l.a.cfg.Addresses, nil
	}
	who, err := state.Dir(l.a.cfg.StateDir).Identity()
	return who.FleetAddresses, err
}

func (l *life) welcomed(w *fleetv1.Welcome) {
	if l.a.cfg.Connected != nil {
		l.a.cfg.Connected()
	}
	if l.site != nil {
		l.site.service.Reports().Repeat()
	}
	if w.GetMachineId() == "" || w.GetMachineId() == l.who.MachineID || l.isSite() {
		return
	}
	l.a.cfg.Log.Warn("the controller calls this machine by another name than at enrolment",
		"machine_id", w.GetMachineId(), "enrolled_as", l.who.MachineID)
}

func (l *life) hello(ctx context.Context) (*fleetv1.Hello, error) {
	l.image.Do(func() { l.imageDigest = l.readImageDigest(ctx) })
	h := &fleetv1.Hello{
		OsImageDigest: l.imageDigest,
		Version:       l.a.cfg.Version, Roles: []string{l.who.Role}, Capabilities: l.capabilities(), BootId: l.ident.BootID,
		MachineIdOs: l.ident.MachineID, HardwareFingerprint: l.ident.HardwareFingerprint, Simulated: l.simulated(),
		Region: l.who.Region, Provider: l.who.Provider, Hostname: l.ident.Hostname,
	}
	return h, nil
}

// readImageDigest returns the digest of the image that the running system was made from, as its inventory reports it.
func (l *life) readImageDigest(ctx context.Context) string {
	if l.isSite() || l.a.cfg.NoInventory {
		return ""
	}
	doc, err := l.host.Inventory(ctx)
	if err != nil {
		return "" // the inventory report reports the error
	}
	return doc.OS.ImageDigest
}

// capSSH: it runs scripts on machines over SSH.
const capSSH = "ssh"

// capDiscovery: it looks for BMCs.
const capDiscovery = "bmc-discovery"

// capPassword: it changes the passwords of BMCs.
const capPassword = "bmc-password"

// capCluster: it speaks to clusters about machines.
const capCluster = "cluster"

func (l *life) capabilities() []string {
	if l.isSite() && l.site != nil {
		return append(l.providers.Capabilities(), capSSH, capCluster, capDiscovery, capPassword,
			"provider:"+provideraction.Provider)
	}
	if l.isSite() {
		return l.providers.Capabilities()
	}
	if l.isInstaller() {
		return forInstaller(l.host.Capabilities())
	}
	return l.host.Capabilities()
}

func (l *life) heartbeat() *fleetv1.Heartbeat {
	return &fleetv1.Heartbeat{BootId: l.ident.BootID, UptimeMs: l.a.cfg.Boottime().Milliseconds(), RssBytes: rss()}
}

// rss reads this process's resident set (proc_pid_statm(5), in pages); 0 is unknown.
func rss() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// resolve returns the executor of a command, or its refusal. A host agent acts on its own machine only.
func (l *life) resolve(spec *fleetv1.CommandSpec) (executor.Executor, *executor.Result) {
	agent := l.executors()
	if l.isSite() {
		if e := action.OfSite(&agent, spec); e != nil {
			return e, nil
		}
		return l.providers.Resolve(agent, spec)
	}
	if spec.GetTargetId() != l.who.MachineID {
		r := executor.Refused(baremetalv1.Reason_INVALID_FIELD, "this is %s, not %s", l.who.MachineID, spec.GetTargetId())
		return nil, &r
	}
	return action.Own(&agent, spec)
}

// executors returns what this agent's executors need.
func (l *life) executors() action.Agent {
	agent := action.Agent{
		Clock: l.a.cfg.Clock, RebootSettle: l.a.cfg.RebootSettle, RebootPoll: l.a.cfg.RebootPoll, Docs: l.store,
		Prove: l.runner.Probe, Controllers: l.controllers, Moved: l.runner.Reconnect,
		Own:       action.Machine{ID: l.who.MachineID, Host: l.host, Simulated: l.ident.Simulated},
		Installer: l.isInstaller(), Boot: l.a.cfg.Boot, NextSystem: l.nextSystem, FetchBlob: l.controller.fetchBlob,
		JoinMaterial: l.controller.joinMaterial, JoinDir: filepath.Join(l.a.cfg.StateDir, "join"),
	}
	if l.site != nil {
		agent.Probe, agent.Media = l.probe, l.site.service.InsertMedia
		agent.Site = &action.Site{
			Scripts: l.scripts(), Clusters: l.clusters(), BMCPasswords: l.bmcPasswords(),
			ProviderActions: l.providerActions(),
		}
	}
	return agent
}

func (l *life) reconfigConfig() reconfig.Config {
	return reconfig.Config{
		Host: l.host, Docs: l.store, Clock: l.a.cfg.Clock, TargetID: l.who.MachineID,
		Prove: l.runner.Probe, Controllers: l.controllers, Moved: l.runner.Reconnect,
	}
}

func (l *life) controllers(ctx context.Context) []netip.AddrPort {
	list, err := l.addresses()
	if err != nil {
		return nil
	}
	return session.Controllers(ctx, append(slices.Clone(list), l.who.EnrollAddresses...))
}

// rollbackAgain is the time between two tries to undo a configuration that has not proved itself.
const rollbackAgain = 10 * time.Second

// undoing is a host that keeps unproven changes, which may be left over from an agent that was killed or could not undo
// them.
type undoing interface {
	RollBackPending(ctx context.Context, now bool) (done bool, err error)
}

// rollBack undoes a configuration that was not confirmed in time, and retries without a limit: systemd's timer may be
// gone, or have failed.
func (l *life) rollBack(ctx context.Context) error {
	h, ok := l.host.(undoing)
	if !ok || l.isSite() || l.isInstaller() {
		return nil
	}
	for said := ""; ; {
		done, err := h.RollBackPending(ctx, false)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && err.Error() != said:
			said = err.Error()
			l.a.cfg.Log.Error("configuration not rolled back; it is tried again", "error", err)
		case err == nil && done:
			said = ""
			l.a.cfg.Log.Warn("a configuration that had not proved itself was rolled back")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.a.cfg.Clock.After(rollbackAgain):
		}
	}
}

// listening is a host that hears what its network interfaces are plugged into, which takes half a minute.
type listening interface {
	HearNeighbours(ctx context.Context)
}

// reportInventory puts the inventory into the event buffer when its hash has changed. The first inventory of a memory
// does not wait for neighbours; a later one does, so that a restart is no change.
func (l *life) reportInventory(ctx context.Context) error {
	if l.a.cfg.NoInventory || l.isSite() {
		return nil
	}
	report := func() {
		if err := l.inventoryOnce(ctx); err != nil && ctx.Err() == nil {
			l.a.cfg.Log.Warn("inventory not reported", "error", err)
		}
	}
	ear, hears := l.host.(listening)
	if known, err := l.store.InventoryHash(ctx); err != nil || known == "" {
		report()
	}
	tick := l.a.cfg.Clock.NewTicker(l.a.cfg.InventoryEvery)
	defer tick.Stop()
	for listen := hears; ; {
		if listen {
			ear.HearNeighbours(ctx)
		}
		report()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
			listen = hears
		case <-l.inventoryDue:
			listen = false
		}
	}
}

func (l *life) inventoryOnce(ctx context.Context) error {
	doc, err := l.host.Inventory(ctx)
	if err != nil {
		return fmt.Errorf("collect inventory: %w", err)
	}
	hash := doc.Hash()
	last, err := l.store.InventoryHash(ctx)
	if err != nil || hash == last {
		return err
	}
	body, err := doc.JSON()
	if err != nil {
		return err
	}
	r := &fleetv1.InventoryReport{Document: body, Hash: hash, MachineId: l.who.MachineID}
	return l.store.AppendInventory(ctx, r, l.a.cfg.Clock.Now())
}
