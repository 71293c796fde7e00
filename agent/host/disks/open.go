package disks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/disk"
)

// Disk is an open disk, to write an image to or to erase.
type Disk interface {
	image.Disk
	erase.Disk
	io.Closer
	// Seq is the kernel's number of the medium that is open: see disk.Device.Seqs. 0 is unknown.
	Seq() uint64
	// Unclaimed lets others claim the disk for as long as fn runs.
	Unclaimed(fn func() error) error
	// Part makes a part of the disk a device of its own for as long as fn runs.
	Part(ctx context.Context, off, n int64, fn func(path string) error) error
}

// Open opens a disk of the machine.
func Open(path string, write bool) (Disk, error) {
	d, err := block.Open(path, write)
	if err != nil {
		return nil, err
	}
	return device{Disk: d, name: filepath.Base(path)}, nil
}

// device is a disk that takes the commands of its kind.
type device struct {
	*block.Disk
	name string
}

// NVMe implements erase.Disk.
func (d device) NVMe() erase.AdminQueue {
	if controllerOf(d.name) == "" {
		return nil
	}
	return nvmeQueue{d.Disk}
}

// ATA implements erase.Disk. Drives behind the SCSI layer say themselves whether they are ATA.
func (d device) ATA() erase.PassThrough {
	if !strings.HasPrefix(d.name, "sd") {
		return nil
	}
	return ataDrive{d.Disk}
}

// openForWriting claims the disk that was chosen. Between the choice and the opening another disk may have got its
// name: the open disk must be the one that the machine shows under that name now, and both must be the chosen one. One
// that the running system uses is refused.
func (s *Storage) openForWriting(d disk.Device) (Disk, error) {
	b, err := s.open(d.Path, true)
	if errors.Is(err, unix.EBUSY) {
		return nil, effect.Refuse(
			effect.ErrUnsupported,
			effect.ReasonDiskBusy,
			"%s is in use by the running system: %v",
			d.Path,
			err,
		)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open %s, which was there a moment ago: %w", d.Path, err)
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.stillThere(b, d), s.onePlace(b, d)); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// stillThere fails when the open disk is not the one that was chosen.
func (s *Storage) stillThere(open Disk, chosen disk.Device) error {
	if open.Size() != chosen.Size {
		return fmt.Errorf("%s has %d bytes, and had %d when it was chosen", chosen.Path, open.Size(), chosen.Size)
	}
	if seq := open.Seq(); seq != 0 && len(chosen.Seqs) > 0 && seq != chosen.Seqs[0] {
		return fmt.Errorf("%s is another disk than the one that was chosen", chosen.Path)
	}
	all, err := s.Disks()
	if err != nil {
		return err
	}
	now, err := disk.Find(all, chosen.Ref())
	if err == nil && now.Path != chosen.Path {
		err = fmt.Errorf("%s is called %s now", chosen.Path, now.Path)
	}
	return err
}

// onePlaceReads is at how many random places the paths to one disk are compared, beside both ends.
const onePlaceReads = 14

// onePlace compares what the paths to a disk show. Some makers give all disks one WWN and one serial number. Such disks
// are taken for paths to one disk, and no rule distinguishes them. A path that cannot be read, such as one in standby,
// shows nothing.
func (s *Storage) onePlace(open Disk, d disk.Device) error {
	for _, path := range d.Paths {
		same, err := s.sameContent(open, path)
		if err != nil {
			s.sys.Log.Warn("a path to the disk cannot be read", "disk", d.String(), "path", path, "error", err)
			continue
		}
		if !same {
			other := d
			other.Path = path
			return &disk.NoUniqueMatch{Twins: true, Candidates: []disk.Candidate{{Device: d}, {Device: other}}}
		}
	}
	return nil
}

func (s *Storage) sameContent(a Disk, path string) (same bool, err error) {
	b, err := s.open(path, false)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if a.Size() != b.Size() {
		return false, nil
	}
	const n = 1 << 20
	last := max(a.Size()-n, 0) / block.Alignment * block.Alignment
	at := []int64{0, last}
	for range onePlaceReads {
		at = append(at, rand.Int64N(last/block.Alignment+1)*block.Alignment)
	}
	one, two := block.Buffer(n), block.Buffer(n)
	for _, off := range at {
		size := min(n, a.Size()-off)
		if _, err := a.ReadAt(one[:size], off); err != nil {
			return false, err
		}
		if _, err := b.ReadAt(two[:size], off); err != nil {
			return false, err
		}
		if !bytes.Equal(one[:size], two[:size]) {
			return false, nil
		}
	}
	return true, nil
}
