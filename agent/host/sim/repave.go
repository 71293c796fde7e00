package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/effect"
)

// repaveSteps is how often a repave reports progress.
const repaveSteps = 20

// DiskImage reads back what the disk holds.
func (m *Machine) DiskImage(ctx context.Context) (host.DiskImage, error) {
	st, err := m.state(ctx)
	return st.Disk, err
}

// Repave writes a fake image. The disk holds no known image from the first byte to the last, so a repave that
// is killed in the middle leaves just that.
func (m *Machine) Repave(
	ctx context.Context, e effect.Cause, r host.RepaveRequest, progress func(host.RepaveProgress),
) (host.RepaveEvidence, error) {
	image, err := m.imageFor(r)
	if err != nil {
		return host.RepaveEvidence{}, err
	}
	fault, err := m.beginRepave(ctx, e, image)
	if err != nil || fault.Mode == Late {
		return m.evidence(ctx, err)
	}
	switch fault.Mode {
	case Never:
		<-ctx.Done()
		return host.RepaveEvidence{}, fmt.Errorf("wait for the repave of %s: %w", m.id, context.Cause(ctx))
	case Lie:
		return host.RepaveEvidence{Image: image, Simulated: true}, m.write(ctx, r, progress)
	}
	if err := m.write(ctx, r, progress); err != nil {
		return host.RepaveEvidence{}, err
	}
	return m.evidence(ctx, m.endRepave(e, image, fault))
}

func (m *Machine) imageFor(r host.RepaveRequest) (host.DiskImage, error) {
	if !strings.HasPrefix(r.Digest, "sha256:") || len(r.Digest) != len("sha256:")+64 {
		return host.DiskImage{}, invalid("repave with digest %q, want sha256:<64 hex digits>", r.Digest)
	}
	st, err := m.world.State(m.id)
	if err != nil {
		return host.DiskImage{}, err
	}
	serial := st.Disk.Disk
	if r.DiskRule != "" && r.DiskRule != "serial="+serial {
		return host.DiskImage{}, invalid("repave the disk with %s, there is only serial=%s", r.DiskRule, serial)
	}
	return host.DiskImage{Disk: serial, Digest: r.Digest, Bytes: r.Bytes, Nonce: r.Nonce}, nil
}

// beginRepave asks for the effect. From here on the old content of the disk is gone, unless the script makes the call
// fail.
func (m *Machine) beginRepave(ctx context.Context, e effect.Cause, image host.DiskImage) (Fault, error) {
	if err := ctx.Err(); err != nil {
		return Fault{}, err
	}
	c := change{Kind: KindRepave, Effect: e, Detail: image.Digest}
	var fault Fault
	_, err := m.world.update(m.id, func(st *MachineState, now time.Time) error {
		if err := m.check(st); err != nil {
			return err
		}
		fault = m.world.count(st, &c, now)
		switch fault.Mode {
		case FailBefore, Decline, CrashBefore, Never:
		case Late:
			c.Image = image
			st.Pending = append(st.Pending, pending{Due: now.Add(fault.After), Change: c})
		default:
			c.Image = host.DiskImage{Disk: image.Disk}
			st.happen(now, c)
		}
		return nil
	})
	if err != nil {
		return fault, err
	}
	switch fault.Mode {
	case FailBefore, Decline, CrashBefore:
		return fault, m.world.answer(m.id, KindRepave, fault)
	}
	return fault, nil
}

// write lets the time pass that the writing takes.
func (m *Machine) write(ctx context.Context, r host.RepaveRequest, progress func(host.RepaveProgress)) error {
	for step := 1; step <= repaveSteps; step++ {
		if d := m.world.cfg.RepaveTime / repaveSteps; d > 0 {
			select {
			case <-ctx.Done():
				return fmt.Errorf("repave %s: %w", m.id, context.Cause(ctx))
			case <-m.world.cfg.Clock.After(d):
			}
		}
		if progress != nil {
			progress(progressAt(step, r.Bytes))
		}
	}
	return ctx.Err()
}

func progressAt(step int, bytes int64) host.RepaveProgress {
	stage := "write"
	switch {
	case step == 1:
		stage = "zero"
	case step > repaveSteps*8/10:
		stage = "verify"
	}
	return host.RepaveProgress{Stage: stage, Percent: step * 100 / repaveSteps, Bytes: bytes * int64(step) / repaveSteps}
}

func (m *Machine) endRepave(e effect.Cause, image host.DiskImage, fault Fault) error {
	_, err := m.world.update(m.id, func(st *MachineState, now time.Time) error {
		if err := m.check(st); err != nil {
			return err
		}
		st.Disk = image
		st.record(now, StageVerified, change{Kind: KindRepave, Effect: e, Fault: fault.Mode, Detail: image.Digest})
		return nil
	})
	if err != nil {
		return err
	}
	return m.world.answer(m.id, KindRepave, fault)
}

// evidence reads the disk back, unless there is an error to report instead.
func (m *Machine) evidence(ctx context.Context, err error) (host.RepaveEvidence, error) {
	if err != nil {
		return host.RepaveEvidence{}, err
	}
	image, err := m.DiskImage(ctx)
	return host.RepaveEvidence{Image: image, Simulated: true}, err
}

// ReplaceDisk puts an empty disk with another serial number into a machine, as a person does who has switched it off.
func (w *World) ReplaceDisk(machineID, serial string) error {
	_, err := w.update(machineID, func(st *MachineState, _ time.Time) error {
		if st.On {
			return invalid("replace the disk of %s, which is on", machineID)
		}
		st.Disk = host.DiskImage{Disk: serial}
		return nil
	})
	return err
}
