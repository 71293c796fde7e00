package disks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/disk/mirror"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/gpt"
	"github.com/ingot-metal/ingot/internal/version"
	"github.com/ingot-metal/ingot/internal/zstream"
)

// WriteImage is one image for one disk.
type WriteImage struct {
	// DiskRule and Protected: see package disk. The disk is chosen again when the writing begins, and must be Disk.
	DiskRule  string
	Protected []string
	// Disk is the choice of before; the zero Ref takes the disk of the rule.
	Disk disk.Ref
	// MirrorRule means the second disk of a mirror, and Mirror is what was chosen before; "": one disk is written.
	MirrorRule string
	Mirror     disk.Ref
	// Data are the data disks, as disk.ParseDataDisk reads them.
	Data []string

	URL      string
	FileSize int64 // 0 is unknown
	Format   image.Format
	RawSize  int64
	// Digest is "sha256:<hex>" of the raw bytes.
	Digest      string
	MinimumDisk int64
	// Agentless: the disk gets no state partition.
	Agentless bool
	// Seed determines which images can take the seed. Only ProbeImage uses it; a write has the seed itself.
	Seed firstboot.For

	// Begin has the last word before the first byte is changed, when the image has been opened.
	Begin func(ctx context.Context) error
	// Identity returns the files of the new system; Committing must make its argument durable. See image.Job.
	Identity   func(ctx context.Context) (NextSystem, error)
	Committing func(ctx context.Context, c image.Commit) error
	Progress   func(image.Progress)
}

// ErrNotWritten goes with errors that mean that not one byte of a disk was changed.
var ErrNotWritten = errors.New("nothing was written")

// WriteImage writes an image to a disk, reads it back, and makes it bootable: see package image. It works in the
// installer only.
func (s *Storage) WriteImage(
	ctx context.Context,
	_ effect.Cause,
	w WriteImage,
) (_ disk.Device, _ image.Evidence, err error) {
	var none image.Evidence
	digest, err := ParseDigest(w.Digest)
	if err != nil {
		return disk.Device{}, none, effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "%v", err)
	}
	to, err := s.openTarget(w)
	if err != nil {
		return to.Device, none, err
	}
	d, dev := to.Disk, to.Device
	data, err := s.chooseData(w.Data, w.Protected, dev.Ref(), w.Mirror)
	if err != nil {
		return dev, none, errors.Join(err, d.Close())
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	src := image.Source{URL: w.URL, Size: w.FileSize, Client: s.http, Clock: clock.Real(), Log: s.sys.Log}
	var next NextSystem
	state := func() (io.ReadCloser, error) { return openTemplate(s.sys.Path(s.template)) }
	if w.Agentless {
		state = nil
	}
	out, err := image.Write(ctx, image.Job{
		Disk: d, RawSize: w.RawSize, RawDigest: digest, MinimumDisk: w.MinimumDisk,
		Open:  func(ctx context.Context) (io.ReadCloser, error) { return image.Open(ctx, src, w.Format) },
		State: state, Judge: s.judge(d.Sector()),
		Begin:  func(ctx context.Context) error { return to.begin(ctx, w.Begin) },
		Others: func() (map[string][]gpt.Partition, error) { return s.otherTables(dev.Ref(), w.Mirror) },
		Identity: func(ctx context.Context) (_ map[string][]byte, err error) {
			next, err = w.Identity(ctx)
			return next.Files, err
		},
		Customize: func(ctx context.Context, layout image.Layout) (image.Custom, error) {
			mounts, err := s.makeData(ctx, data)
			if err != nil {
				return image.Custom{}, err
			}
			out, err := s.customize(ctx, d, layout, next, mounts)
			out.Mounts = mounts
			return out, err
		},
		Committing: func(ctx context.Context, c image.Commit) error { return to.commit(ctx, c, w.Committing) },
		Progress:   w.Progress, Clock: clock.Real(),
		Fill: func(ctx context.Context, off, size int64, files map[string][]byte) error {
			return s.fillPartition(ctx, d, off, size, files)
		},
	})
	return dev, out, err
}

// target is what an image is written to: a disk, or two of a mirror.
type target struct {
	disk.Device
	Disk   Disk
	mirror *mirrored // nil for one disk
}

// openTarget chooses again, and opens what was chosen before.
func (s *Storage) openTarget(w WriteImage) (t target, err error) {
	var second disk.Device
	if w.MirrorRule == "" {
		t.Device, err = s.ChooseDisk(w.DiskRule, w.Protected)
	} else {
		var p disk.Pair
		p, err = s.ChoosePair(w.DiskRule, w.MirrorRule, w.Protected)
		t.Device, second = p.First, p.Second
	}
	if err != nil {
		return t, err
	}
	if w.Disk.ID != "" && (!w.Disk.Is(t.Device) || w.MirrorRule != "" && !w.Mirror.Is(second)) {
		now, before := t.String(), w.Disk.ID
		if w.MirrorRule != "" {
			now, before = now+" and "+second.String(), before+" and "+w.Mirror.ID
		}
		return t, fmt.Errorf("the rule means %s now, and meant another disk when it was chosen, %s: %w", now, before,
			ErrNotWritten)
	}
	if w.MirrorRule == "" {
		t.Disk, err = s.openForWriting(t.Device)
	} else if t.mirror, err = s.openPair(disk.Pair{First: t.Device, Second: second}); err == nil {
		t.Disk = *t.mirror
	}
	if err != nil {
		return t, fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	return t, nil
}

// begin takes away what the disks of a mirror were part of before, once it may be written.
func (t target) begin(ctx context.Context, may func(context.Context) error) error {
	if may != nil {
		if err := may(ctx); err != nil {
			return err
		}
	}
	if t.mirror == nil {
		return nil
	}
	return t.mirror.Clear()
}

// commit makes the disks a mirror before they can become bootable.
func (t target) commit(ctx context.Context, c image.Commit, durable func(context.Context, image.Commit) error) error {
	if err := durable(ctx, c); err != nil || t.mirror == nil {
		return err
	}
	return t.mirror.Label(time.Now())
}

// probePatience is how long an image may take to bring its first bytes, when nothing but that is asked.
const probePatience = 30 * time.Second

// otherTables reads the partition tables of all disks but the targets. A disk that cannot be read, or has no table, has
// none.
func (s *Storage) otherTables(targets ...disk.Ref) (map[string][]gpt.Partition, error) {
	all, err := s.Disks()
	if err != nil {
		return nil, err
	}
	out := map[string][]gpt.Partition{}
	for _, dev := range all {
		if dev.Size < gpt.HeadSize || slices.ContainsFunc(targets, func(t disk.Ref) bool { return t.Is(dev) }) {
			continue
		}
		d, err := s.open(dev.Path, false)
		if err != nil {
			s.sys.Log.Warn("a disk beside the one that is written cannot be read", "disk", dev.String(), "error", err)
			continue
		}
		head := block.Buffer(gpt.HeadSize)
		_, err = d.ReadAt(head, 0)
		if err := errors.Join(err, d.Close()); err != nil {
			s.sys.Log.Warn("a disk beside the one that is written cannot be read", "disk", dev.String(), "error", err)
			continue
		}
		if table, err := gpt.Parse(head, d.Sector()); err == nil {
			out[dev.String()] = table.Partitions()
		}
	}
	return out, nil
}

// ProbeImage reads the image's beginning, for a disk with sectors of so many bytes: see image.Probe. It takes URL,
// FileSize, Format, Protected, Disk, Mirror, Data and Seed of w, and writes nothing.
func (s *Storage) ProbeImage(ctx context.Context, w WriteImage, sector int) error {
	if _, err := s.chooseData(w.Data, w.Protected, w.Disk, w.Mirror); err != nil {
		return err
	}
	src := image.Source{URL: w.URL, Size: w.FileSize, Client: s.http, Clock: clock.Real(), Log: s.sys.Log,
		Patience: probePatience}
	return image.Probe(ctx, src, w.Format, sector, w.Seed,
		func() (map[string][]gpt.Partition, error) { return s.otherTables(w.Disk, w.Mirror) }, s.judge(sector))
}

// judge asks of a root file system what this kernel would make of it, since it will mount it.
func (s *Storage) judge(sector int) image.Judge {
	return func(p gpt.Partition, head []byte) string {
		// Without its driver the kernel does not tell its features; the mount will name a driver that is absent.
		if err := s.loadModule("fs-" + firstboot.FileSystem(head)); err != nil {
			return fmt.Sprintf("load the driver of %s: %v", firstboot.FileSystem(head), err)
		}
		k := firstboot.Kernel{Page: os.Getpagesize()}
		if v, ok := version.Parse(s.sys.ReadText("proc/sys/kernel/osrelease")); ok {
			k.Major, k.Minor = v.Major, v.Minor
		}
		_, err := os.Stat(s.sys.Path("sys/fs/ext4/features/casefold"))
		k.Casefold = err == nil
		return k.Refuses(head, p.Size, sector)
	}
}

// loaderKexec is the boot loader type of a kernel that kexec_file_load(2) has started (Documentation/arch/x86/boot.rst,
// type_of_loader D).
const loaderKexec = "13"

// FirmwareKind returns the firmware that has started the machine: "uefi" or "bios". It is "" where neither is certain:
// a kernel entered by kexec may not have been handed the firmware's tables, and machines other than PCs have no BIOS.
func (s *Storage) FirmwareKind() string {
	if _, err := os.Stat(s.sys.Path("sys/firmware/efi")); err == nil {
		return "uefi"
	}
	if runtime.GOARCH != "amd64" || s.sys.ReadText("proc/sys/kernel/bootloader_type") == loaderKexec {
		return ""
	}
	return "bios"
}

// CheckImage returns nil when the disk, or both of a mirror, hold the committed image: see image.Check. It takes Disk,
// Mirror, Digest and RawSize of w, and writes nothing.
func (s *Storage) CheckImage(ctx context.Context, w WriteImage, c image.Commit) (err error) {
	want, err := ParseDigest(w.Digest)
	if err != nil {
		return err
	}
	if w.Mirror.ID != "" {
		m, err := s.openMirrored(w.Disk, w.Mirror)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		return checkMirror(ctx, m, w.RawSize, want, c)
	}
	all, err := s.Disks()
	if err != nil {
		return err
	}
	dev, err := disk.Find(all, w.Disk)
	if err != nil {
		return err
	}
	d, err := s.open(dev.Path, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return image.Check(ctx, d, w.RawSize, want, c)
}

// checkMirror is image.Check for both disks of a mirror. Disks that differ, or are no mirror, hold something else.
func checkMirror(ctx context.Context, m *mirror.Disk, size int64, digest [sha256.Size]byte, c image.Commit) error {
	err := m.Check()
	if err == nil {
		err = image.Check(ctx, m, size, digest, c)
	}
	if errors.Is(err, mirror.ErrNoMirror) || errors.Is(err, mirror.ErrDiffer) {
		err = fmt.Errorf("%w: %w", image.ErrAnother, err)
	}
	return err
}

// ParseDigest reads "sha256:<hex>", or the hex alone.
func ParseDigest(s string) (out [sha256.Size]byte, err error) {
	b, err := hex.DecodeString(strings.TrimPrefix(s, "sha256:"))
	if err != nil || len(b) != sha256.Size {
		return out, fmt.Errorf("%q is no SHA-256 in hex", s)
	}
	return [sha256.Size]byte(b), nil
}

// openTemplate returns the file system of the state partition, which the installer's image carries compressed.
func openTemplate(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the state partition's file system: %w", err)
	}
	z, err := zstream.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the state partition's file system: %w", err), f.Close())
	}
	return template{z, f}, nil
}

type template struct {
	*zstream.Reader
	f *os.File
}

// Close implements io.Closer.
func (t template) Close() error {
	return errors.Join(t.Reader.Close(), t.f.Close())
}
