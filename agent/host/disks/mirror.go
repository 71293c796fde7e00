package disks

import (
	"context"
	"errors"
	"fmt"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/disk/mirror"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/disk"
)

// mirrorModule is the alias of the kernel's driver for mirrors.
const mirrorModule = "md-raid1"

// mirrored is the two disks of a mirror as one.
type mirrored struct {
	*mirror.Disk
	halves [2]Disk
	paths  [2]string
	// load inserts a driver by its alias.
	load func(alias string) error
}

var _ Disk = mirrored{}

func isMirror(d Disk) bool {
	_, ok := d.(mirrored)
	return ok
}

// NVMe implements erase.Disk: a mirror takes the commands of no kind.
func (mirrored) NVMe() erase.AdminQueue { return nil }

// ATA implements erase.Disk.
func (mirrored) ATA() erase.PassThrough { return nil }

// Unclaimed lets others claim both disks for as long as fn runs.
func (m mirrored) Unclaimed(fn func() error) error {
	return m.halves[0].Unclaimed(func() error { return m.halves[1].Unclaimed(fn) })
}

// Part makes a part of the mirror a device, which the kernel writes to both disks.
func (m mirrored) Part(ctx context.Context, off, n int64, fn func(path string) error) error {
	if err := m.load(mirrorModule); err != nil {
		return fmt.Errorf("load the driver of mirrors: %w", err)
	}
	return m.Unclaimed(func() error {
		return mirror.With(ctx, m.paths, func(array string) (err error) {
			d, err := block.Open(array, true)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, d.Close()) }()
			return d.Part(ctx, off, n, fn)
		})
	})
}

// openPair opens both disks of a mirror for writing.
func (s *Storage) openPair(p disk.Pair) (_ *mirrored, err error) {
	first, err := s.openForWriting(p.First)
	if err != nil {
		return nil, err
	}
	second, err := s.openForWriting(p.Second)
	if err != nil {
		return nil, errors.Join(err, first.Close())
	}
	m := &mirrored{
		halves: [2]Disk{first, second}, paths: [2]string{p.First.Path, p.Second.Path}, load: s.loadModule,
	}
	if m.Disk, err = mirror.New(first, second); err != nil {
		return nil, errors.Join(effect.Refuse(effect.ErrUnsupported, effect.ReasonInvalid, "%v", err), first.Close(),
			second.Close())
	}
	return m, nil
}

// ChoosePair returns the only pair of disks that the rules mean: see disk.ChoosePair. It fails as ChooseDisk does.
func (s *Storage) ChoosePair(rule, second string, protected []string) (disk.Pair, error) {
	if err := s.refuseDisks(); err != nil {
		return disk.Pair{}, err
	}
	r, err := disk.ParseRule(rule)
	other, worse := disk.ParseRule(second)
	keep, worst := disk.ParseRules(protected)
	if err := errors.Join(err, worse, worst); err != nil {
		return disk.Pair{}, effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "%v", err)
	}
	return waitForDisks(s, func(all []disk.Device) (p disk.Pair, named bool, err error) {
		p, err = disk.ChoosePair(all, r, other, keep)
		return p, r.Names() && other.Names(), err
	})
}

// openMirrored opens the two disks of a mirror that was written, to read them.
func (s *Storage) openMirrored(first, second disk.Ref) (_ *mirror.Disk, err error) {
	all, err := s.Disks()
	if err != nil {
		return nil, err
	}
	var halves []mirror.Half
	for _, ref := range []disk.Ref{first, second} {
		dev, err := disk.Find(all, ref)
		if err == nil {
			var d Disk
			if d, err = s.open(dev.Path, false); err == nil {
				halves = append(halves, d)
				continue
			}
		}
		for _, h := range halves {
			err = errors.Join(err, h.Close())
		}
		return nil, err
	}
	return mirror.New(halves[0], halves[1])
}
