package agent

import (
	"cmp"
	"context"
	"strings"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor/reconfig"
	"github.com/ingot-metal/ingot/agent/findings"
	"github.com/ingot-metal/ingot/agent/inventory"
	"github.com/ingot-metal/ingot/internal/task"
)

// raidEvery is how often a host looks at its software RAID.
const raidEvery = time.Minute

// raidReport is the kind of the report about it.
const raidReport = "raid"

// withArrays is a host that may have software RAID.
type withArrays interface {
	Arrays() []inventory.Array
}

// reportFindings reports foreign changes of the configuration, arrays that have lost a disk, and the end of either.
func (l *life) reportFindings(ctx context.Context) error {
	if l.isSite() || l.isInstaller() {
		return nil
	}
	w := findings.Watcher{Clock: l.a.cfg.Clock, Memory: l.store, Failed: func(kind string, err error) {
		l.a.cfg.Log.Warn("not looked at", "kind", kind, "error", err)
	}}
	group, _ := task.New(ctx) // Go hands its context to each function
	watch := func(f findings.Finding) {
		group.Go(f.Kind, func(ctx context.Context) error {
			w.Watch(ctx, f)
			return nil
		})
	}
	reconfigs := reconfig.New(l.reconfigConfig())
	watch(findings.Finding{Kind: reconfig.DriftKind, Every: reconfig.DriftEvery,
		Look: func(ctx context.Context) (findings.State, error) {
			d, err := reconfigs.Drift(ctx)
			return findings.State{Name: d.State(), Report: d.Report(l.who.MachineID)}, err
		}})
	if h, ok := l.host.(withArrays); ok {
		watch(findings.Finding{Kind: raidReport, Every: raidEvery,
			Look: func(context.Context) (findings.State, error) { return l.raid(h.Arrays()), nil },
			// The inventory lists arrays too, and must not contradict the report until its next hour.
			Reported: func() {
				select {
				case l.inventoryDue <- struct{}{}:
				default: // it is due already
				}
			}})
	}
	return group.Wait()
}

// raid is the state of a host's arrays: their faults, "none" for none, empty when there are no arrays.
func (l *life) raid(arrays []inventory.Array) findings.State {
	var faults []string
	for _, a := range arrays {
		if f := a.Fault(); f != "" {
			faults = append(faults, f)
		}
	}
	fault := strings.Join(faults, "; ")
	name := fault
	if fault == "" && len(arrays) > 0 {
		name = "none"
	}
	return findings.State{Name: name, Report: &fleetv1.Report{Kind: raidReport, MachineId: l.who.MachineID,
		Message: cmp.Or(fault, "all disks of all arrays are there"), Fields: map[string]string{"fault": fault}}}
}
