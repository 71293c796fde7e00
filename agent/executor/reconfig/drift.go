package reconfig

import (
	"context"
	"fmt"
	"strconv"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/rollback"
	"github.com/ingot-metal/ingot/agent/host/textdiff"
)

const (
	// DriftKind is the kind of the report about changes that the agent did not make.
	DriftKind = "drift"
	// DriftEvery is how often to look for it.
	DriftEvery = 3 * time.Minute
	// maxDiff bounds what goes over the wire.
	maxDiff = 16 << 10
)

// Drift is how the host differs from what was committed. An empty Diff is none.
type Drift struct {
	Generation int64
	Diff       string
}

// State names the drift: equal names are equal drifts. It is empty where nothing was ever committed.
func (d Drift) State() string {
	switch {
	case d.Generation == 0:
		return ""
	case d.Diff == "":
		return "none"
	}
	return d.Digest()
}

// Report is the event about it.
func (d Drift) Report(machineID string) *fleetv1.Report {
	r := &fleetv1.Report{
		Kind: DriftKind, MachineId: machineID, Message: fmt.Sprintf("generation %d is as it was committed", d.Generation),
		Fields: map[string]string{"generation": strconv.FormatInt(d.Generation, 10)},
	}
	if d.Diff != "" {
		r.Message = fmt.Sprintf("generation %d was changed by another party", d.Generation)
		r.Fields["diff"] = shorten(d.Diff)
		r.Fields["digest"] = d.Digest()
	}
	return r
}

// Drift compares the host with what was committed. While a change waits for its proof there is none.
func (e *Executor) Drift(ctx context.Context) (Drift, error) {
	now, err := e.committed(ctx)
	if err != nil || now.Generation == 0 {
		return Drift{}, err
	}
	if w, ok := e.cfg.Host.(host.Watchdog); ok {
		g, err := w.Guarded(ctx)
		if err != nil || g != nil && g.State == rollback.GuardPending {
			return Drift{Generation: now.Generation}, err
		}
	}
	_, diff, err := e.readBack(ctx, now.Settings, nil)
	return Drift{Generation: now.Generation, Diff: diff}, err
}

// readBack returns the host's state as evidence, and its difference from the settings as a unified diff. before is the
// state before a change of ours, if there is one: addresses that others have added since are no difference.
func (e *Executor) readBack(
	ctx context.Context, s settings, before *network.SavedNetwork,
) (evidence map[string]string, diff string, err error) {
	evidence = map[string]string{}
	name, err := e.cfg.Host.Hostname(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("read back host name: %w", err)
	}
	evidence["hostname"] = name
	var want, have []string
	if s.Hostname != "" {
		want, have = append(want, "hostname "+s.Hostname), append(have, "hostname "+name)
	}
	if s.Firewall != nil {
		fw, err := e.cfg.Host.Firewall(ctx)
		if err != nil {
			return nil, "", fmt.Errorf("read back firewall: %w", err)
		}
		evidence["firewall_digest"] = fw.Digest
		want = append(want, firewallLine(true, s.Firewall.Generation, s.Firewall.Digest()))
		have = append(have, firewallLine(fw.Present, fw.Generation, fw.Digest))
	}
	diff = textdiff.Unified("committed/host", "host/host", want, have)
	if h, ok := e.cfg.Host.(ruleByRule); ok && s.Firewall != nil && diff != "" {
		rules, err := h.FirewallDiff(ctx, *s.Firewall)
		if err != nil {
			return nil, "", fmt.Errorf("compare firewall: %w", err)
		}
		diff += rules
	}
	if s.Network == nil {
		return evidence, diff, nil
	}
	state, err := e.cfg.Host.Network(ctx, *s.Network, before)
	if err != nil {
		return nil, "", fmt.Errorf("read back network: %w", err)
	}
	evidence["network_digest"] = state.Digest
	return evidence, diff + state.Diff, nil
}

// ruleByRule is a host that can say more of a table than that it is another one.
type ruleByRule interface {
	FirewallDiff(ctx context.Context, p firewall.Policy) (string, error)
}

func firewallLine(present bool, generation uint64, digest string) string {
	if !present {
		return "firewall none"
	}
	return fmt.Sprintf("firewall generation %d digest %s", generation, digest)
}

func shorten(diff string) string {
	if len(diff) <= maxDiff {
		return diff
	}
	return diff[:maxDiff] + "\n… and more\n"
}
