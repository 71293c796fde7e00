package disks

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/disk"
)

// DisksToErase returns the only disk that the rule means, or, without a rule, every disk that is neither protected nor
// unfit. It fails with a *disk.NoUniqueMatch when there is none.
func (s *Storage) DisksToErase(rule string, protected []string) ([]disk.Device, error) {
	if strings.TrimSpace(rule) != "" {
		d, err := s.ChooseDisk(rule, protected)
		return []disk.Device{d}, err
	}
	if err := s.refuseDisks(); err != nil {
		return nil, err
	}
	keep, err := disk.ParseRules(protected)
	if err != nil {
		return nil, effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "%v", err)
	}
	return waitForDisks(s, func(all []disk.Device) (out []disk.Device, named bool, err error) {
		out, err = disk.Unprotected(all, keep)
		return out, false, err
	})
}

// EraseDisk destroys the data of one disk: see package erase. It works in the installer only. A Refusal and
// erase.ErrUnsupported mean that nothing was changed.
func (s *Storage) EraseDisk(
	ctx context.Context, _ effect.Cause, ref disk.Ref, m erase.Method, progress func(int, string),
) (_ erase.Evidence, err error) {
	if err := s.refuseDisks(); err != nil {
		return erase.Evidence{}, err
	}
	all, err := s.Disks()
	if err != nil {
		return erase.Evidence{}, err
	}
	dev, err := disk.Find(all, ref)
	if err != nil {
		return erase.Evidence{}, err
	}
	d, err := s.openForWriting(dev)
	if err != nil {
		return erase.Evidence{}, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return erase.Run(ctx, erase.Config{
		Disk: d, Method: m, Alone: aloneOnController(dev, all), Clock: clock.Real(), Progress: progress,
	})
}

// aloneOnController reports whether no other disk has the same NVMe controller or subsystem: nvme0n1 and nvme0n2 do.
func aloneOnController(d disk.Device, all []disk.Device) bool {
	own := controllerOf(d.Name)
	for _, other := range all {
		if other.Name != d.Name && own != "" && (controllerOf(other.Name) == own || d.Subsystem != "" &&
			other.Subsystem == d.Subsystem) {
			return false
		}
	}
	return true
}

func controllerOf(name string) string {
	rest, ok := strings.CutPrefix(name, "nvme")
	number, _, found := strings.Cut(rest, "n")
	if !ok || !found {
		return ""
	}
	return number
}

// errStatus is a device's no.
var errStatus = errors.New("the device reports an error")

func statusError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errStatus, fmt.Sprintf(format, args...))
}
