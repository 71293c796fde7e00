package installer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/agent/pid1"
	"github.com/ingot-metal/ingot/agent/site/installerenrol"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/pki"
)

const (
	role = agent.RoleInstaller
	// modeRescue is the mode of an assignment that only wants an inventory.
	modeRescue = "rescue"
	// memoryLimit is for what the collector manages. Machines exist with little more than the initramfs needs.
	memoryLimit = 80 << 20
	// answerFile remembers, for a restart, what the desk said beside the identity.
	answerFile = "desk.json"
	// sayEvery is how often a stopped installer logs the reason.
	sayEvery = time.Minute
)

// Config is what Run needs. Boot and StateDir are required.
type Config struct {
	Boot     pid1.Installer
	StateDir string
	// Host is the machine; Installer in it is set by Run.
	Host    host.Config
	Version string
	// BuildTime is a moment known to have passed.
	BuildTime time.Time
	Log       *slog.Logger
	Clock     clock.Clock
	// Client asks the desk; nil means one for the real network.
	Client *http.Client
	// Failpoints are armed for this installer alone; nil means the process's.
	Failpoints *failpoint.Scope
}

// Run certifies the machine and serves the controller until ctx ends. After a final no it does nothing but say so.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real()
	}
	if cfg.Client == nil {
		cfg.Client = image.NewClient()
	}
	debug.SetMemoryLimit(memoryLimit)
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	answer, err := certified(ctx, cfg)
	var no *Refused
	if errors.As(err, &no) {
		return stop(ctx, cfg, no)
	}
	if err != nil {
		return err
	}
	return serve(ctx, cfg, answer)
}

// certified returns the site agent's answer to this process, or to one before it.
func certified(ctx context.Context, cfg Config) (installerenrol.Answer, error) {
	dir := state.Dir(cfg.StateDir)
	enrolled, err := dir.Enrolled()
	if err != nil {
		return installerenrol.Answer{}, err
	}
	if enrolled {
		return remembered(cfg.StateDir)
	}
	h := host.New(cfg.Host)
	id, err := h.Identity(ctx)
	if err != nil {
		return installerenrol.Answer{}, fmt.Errorf("identify the machine: %w", err)
	}
	m := machine{bootID: id.BootID, fingerprint: id.HardwareFingerprint}
	if doc, err := h.Inventory(ctx); err == nil {
		m.serial = doc.System.Serial
	}
	e := &enroller{boot: cfg.Boot, client: cfg.Client, dir: dir, clock: cfg.Clock, log: cfg.Log, buildTime: cfg.BuildTime}
	e.tpm = openTPM(ctx, cfg)
	answer, err := e.enrol(ctx, m)
	if e.tpm != nil {
		if err := e.tpm.Close(); err != nil {
			cfg.Log.Warn("close the TPM", "error", err)
		}
	}
	if err != nil {
		return answer, err
	}
	cfg.Log.Info("certified for one operation", "operation_id", answer.OperationID, "machine_id", answer.MachineID,
		"agent_id", answer.AgentID, "mode", answer.Mode)
	return answer, nil
}

func remembered(stateDir string) (a installerenrol.Answer, err error) {
	b, err := os.ReadFile(filepath.Join(stateDir, answerFile))
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		return a, fmt.Errorf("remember what the desk said: %w", err)
	}
	return a, nil
}

// remember comes before the identity is stored, so that an identity is never found without it.
func remember(dir state.Dir, a installerenrol.Answer) error {
	b, err := json.Marshal(installerenrol.Answer{Proxy: a.Proxy, Mode: a.Mode, OperationID: a.OperationID,
		MachineID: a.MachineID})
	if err != nil {
		return fmt.Errorf("encode what the desk said: %w", err)
	}
	return pki.WriteFile(filepath.Join(string(dir), answerFile), b, 0o600)
}

// serve runs the agent.
func serve(ctx context.Context, cfg Config, a installerenrol.Answer) error {
	if a.Proxy == "" {
		a.Proxy = cfg.Boot.Site
	}
	dial, err := transport.ViaProxy(a.Proxy, transport.NetDialer())
	if err != nil {
		return err
	}
	// A machine that was booted to be looked at has no business with disks.
	cfg.Host.Installer = a.Mode != modeRescue
	cfg.Host.Disks = disks.DefaultPatience
	cfg.Host.RaiseLinks = true
	cfg.Host.BootMAC = cfg.Boot.MAC
	var network []byte
	if n := cfg.Boot.Static; n != nil {
		cfg.Host.BootNetwork = &firstboot.Network{Address: n.Address, Gateway: n.Gateway, DNS: n.DNS}
		if network, err = json.Marshal(n); err != nil {
			return fmt.Errorf("encode the new system's network: %w", err)
		}
	}
	err = agent.New(agent.Config{
		StateDir: cfg.StateDir, Host: agent.RealHost(cfg.Host), Role: role, Dial: dial, Boot: cfg.Boot.Site, Network: network,
		Version: cfg.Version, BuildTime: cfg.BuildTime, Log: cfg.Log.With("operation_id", a.OperationID), Clock: cfg.Clock,
		Failpoints: cfg.Failpoints,
	}).Run(ctx)
	if err == nil && ctx.Err() == nil {
		return errors.New("the agent ended by itself")
	}
	return err
}

// stop logs the reason every sayEvery until ctx ends.
func stop(ctx context.Context, cfg Config, no *Refused) error {
	for {
		cfg.Log.Error(
			"STOPPED: the site does not certify this system for its operation. Nothing was written. Switch the machine off.",
			"reason", no.Reason, "error", no.Message, "site", cfg.Boot.Site)
		select {
		case <-ctx.Done():
			return nil
		case <-cfg.Clock.After(sayEvery):
		}
	}
}
