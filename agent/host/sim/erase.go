package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/disk"
)

// diskBytes is the size of every simulated disk.
const diskBytes = 960 * 1000 * 1000 * 1000

// DisksToErase returns the machine's one disk, if the rule fits it and nothing protects it.
func (m *Machine) DisksToErase(rule string, protected []string) ([]disk.Device, error) {
	wanted, err := disk.ParseRule(rule)
	if err != nil {
		return nil, invalid("disk rule %q: %v", rule, err)
	}
	keep, err := disk.ParseRules(protected)
	if err != nil {
		return nil, invalid("protected disks: %v", err)
	}
	st, err := m.world.State(m.id)
	if err != nil {
		return nil, err
	}
	only := disk.Device{Name: "simdisk0", Path: "/dev/simdisk0", Serial: st.Disk.Disk, Size: diskBytes, Sector: 4096}
	d, err := disk.Choose([]disk.Device{only}, wanted, keep)
	if err != nil {
		return nil, err
	}
	return []disk.Device{d}, nil
}

// EraseDisk forgets what the disk holds, in the time that a repave takes, and reads it back. The system in memory runs
// on.
func (m *Machine) EraseDisk(
	ctx context.Context, e effect.Cause, ref disk.Ref, _ erase.Method, progress func(int, string),
) (erase.Evidence, error) {
	out := erase.Evidence{Method: erase.Overwrite, Detail: "simulated"}
	begun := m.world.cfg.Clock.Now()
	if err := m.pause(ctx, progress); err != nil {
		return out, err
	}
	did, err := m.cause(ctx, change{Kind: KindErase, Effect: e, Detail: ref.ID}, mustRun)
	if err != nil {
		return out, err
	}
	out.Took = m.world.cfg.Clock.Now().Sub(begun)
	switch did.fault.Mode {
	case Never:
		<-ctx.Done()
		return out, fmt.Errorf("wait for the erasure of %s: %w", m.id, context.Cause(ctx))
	case Late:
		return out, fmt.Errorf("%w: it holds what it held", erase.ErrNotErased)
	case Lie:
		out.Verification = "simulated: claimed"
	default:
		out.Verification = "simulated: read back empty"
	}
	return out, nil
}

// pause lets the time pass that the erasure takes, before it happens all at once.
func (m *Machine) pause(ctx context.Context, progress func(int, string)) error {
	for step := range repaveSteps {
		progress(step*100/repaveSteps, "simulated")
		if err := m.tick(ctx, m.world.cfg.RepaveTime/repaveSteps); err != nil {
			return fmt.Errorf("erase %s: %w", m.id, err)
		}
	}
	return context.Cause(ctx)
}

func (m *Machine) tick(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.world.cfg.Clock.After(d):
		return nil
	}
}
