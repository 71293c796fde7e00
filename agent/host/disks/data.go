package disks

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/gpt"
	"github.com/ingot-metal/ingot/internal/imagelayout"
)

// dataName is what the partition of a data disk is called, by where it is mounted.
func dataName(mount string) string { return "ingot:" + mount }

// minimumData is the size of the smallest disk that becomes one, in bytes: its file system begins with 128 MiB.
const minimumData = 256 << 20

// dataDisk is one that was chosen.
type dataDisk struct {
	disk.Device
	mount string
	// kept is the PARTUUID of the file system that is there; zero: the disk is empty.
	kept gpt.GUID
}

// chooseData finds the data disks of an order. Each is empty, or one already.
func (s *Storage) chooseData(list, protected []string, system ...disk.Ref) ([]dataDisk, error) {
	if len(list) == 0 {
		return nil, nil
	}
	rules, err := disk.ParseDataDisks(list)
	keep, worse := disk.ParseRules(protected)
	if err := errors.Join(err, worse); err != nil {
		return nil, effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "%v", err)
	}
	named := true
	for _, r := range rules {
		named = named && r.Rule.Names()
	}
	kept := map[string]gpt.GUID{}
	chosen, err := waitForDisks(s, func(all []disk.Device) ([]disk.Device, bool, error) {
		got, err := disk.ChooseData(all, rules, keep, system, func(r disk.DataDisk, d disk.Device) (why string) {
			kept[d.Path], why = s.lookAt(d, r.Mount)
			return why
		})
		return got, named, err
	})
	if err != nil {
		return nil, err
	}
	var out []dataDisk
	for i, d := range chosen {
		out = append(out, dataDisk{Device: d, mount: rules[i].Mount, kept: kept[d.Path]})
	}
	return out, nil
}

// lookAt returns the PARTUUID of a data disk that is mounted there, zero for an empty disk, and why a disk is neither.
func (s *Storage) lookAt(dev disk.Device, mount string) (_ gpt.GUID, why string) {
	var none gpt.GUID
	if dev.Size < minimumData {
		return none, "it is smaller than " + disk.FormatSize(minimumData)
	}
	d, err := s.open(dev.Path, false)
	if err != nil {
		return none, fmt.Sprintf("it cannot be read: %v", err)
	}
	defer d.Close() // it was only read
	want, err := dataTableOf(d, dev, mount)
	if err != nil {
		return none, fmt.Sprintf("it takes no partition table: %v", err)
	}
	head, tail := block.Buffer(gpt.HeadSize), block.Buffer(gpt.TailSize)
	_, err = d.ReadAt(head, 0)
	if err == nil {
		_, err = d.ReadAt(tail, d.Size()-gpt.TailSize)
	}
	if err != nil {
		return none, fmt.Sprintf("it cannot be read: %v", err)
	}
	if table, err := gpt.Parse(head, d.Sector()); err == nil {
		if parts := table.Partitions(); len(parts) == 1 && parts[0].Name == dataName(mount) {
			return parts[0].ID, ""
		}
	}
	if begun(head, want.head, d.Sector()) && begun(tail, want.tail, d.Sector()) {
		return none, ""
	}
	return none, "it is not empty, and not the data disk of " + mount + "; it is kept as it is until an operator erases it"
}

// dataTable is the partition table of a data disk, with what goes to either end of the disk.
type dataTable struct {
	part       gpt.Partition
	head, tail []byte
}

// dataTableOf makes the table of a data disk. It is always the same for one disk and path, so that the sectors that a
// killed process has written of it are known.
func dataTableOf(d Disk, dev disk.Device, mount string) (t dataTable, err error) {
	id := func(of string) gpt.GUID { return gpt.GUIDOf("data disk", of, dev.ID(), mount) }
	t.part = gpt.Partition{
		Name: dataName(mount), Type: gpt.LinuxData, ID: id("partition"), Offset: gpt.HeadSize,
		Size: gpt.Place(d.Size(), 0) - gpt.HeadSize,
	}
	t.head, t.tail = block.Buffer(gpt.HeadSize), block.Buffer(gpt.TailSize)
	table := gpt.New(t.head, d.Sector(), id("table"))
	if _, err := table.Add(t.part); err != nil {
		return t, err
	}
	tail, err := table.Fit(t.head, d.Size())
	copy(t.tail, tail)
	return t, err
}

// begun reports whether every sector is zero or has the wanted content.
func begun(got, want []byte, sector int) bool {
	for at := 0; at < len(got); at += sector {
		if is := got[at : at+sector]; len(bytes.Trim(is, "\x00")) > 0 && !bytes.Equal(is, want[at:at+sector]) {
			return false
		}
	}
	return true
}

// write makes the disk one with a file system: its beginning, by which it is recognized, comes last.
func (t dataTable) write(d Disk) error {
	if err := durable(d, t.tail, d.Size()-gpt.TailSize); err != nil {
		return err
	}
	return durable(d, t.head, 0)
}

// makeData makes file systems on empty data disks, and returns where the new system mounts each. A disk has a partition
// table only when its file system is whole, so that one that was interrupted is empty still.
func (s *Storage) makeData(ctx context.Context, list []dataDisk) ([]firstboot.Mount, error) {
	var out []firstboot.Mount
	for _, data := range list {
		m := firstboot.Mount{Path: data.mount, Disk: data.ID(), PartID: data.kept.String()}
		if data.kept == (gpt.GUID{}) {
			id, err := s.makeFileSystem(ctx, data)
			if err != nil {
				return out, fmt.Errorf("make the file system of %s on %s: %w", data.mount, data, err)
			}
			m.PartID, m.Made = id.String(), true
		}
		out = append(out, m)
	}
	return out, nil
}

func (s *Storage) makeFileSystem(ctx context.Context, data dataDisk) (id gpt.GUID, err error) {
	d, err := s.openForWriting(data.Device)
	if err != nil {
		return id, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	table, err := dataTableOf(d, data.Device, data.mount)
	if err != nil {
		return id, err
	}
	part := table.part
	if err := s.copyTemplate(d, part.Offset); err != nil {
		return id, err
	}
	err = d.Part(ctx, part.Offset, part.Size, func(device string) error {
		if err := mounted("ext4", device, false, func(dir string) error {
			return errors.Join(grow(dir, "ext4", part.Size), setUUID(dir))
		}); err != nil {
			return err
		}
		return mounted("ext4", device, true, func(string) error { return nil })
	})
	if err != nil {
		return id, err
	}
	return part.ID, table.write(d)
}

// durable writes, flushes, and compares what reads back.
func durable(d Disk, want []byte, off int64) error {
	if _, err := d.WriteAt(want, off); err != nil {
		return err
	}
	if err := d.Flush(); err != nil {
		return err
	}
	got := block.Buffer(len(want))
	if _, err := d.ReadAt(got, off); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes at %d: %w", len(want), off, effect.ErrReadBack)
	}
	return nil
}

// copyTemplate writes the file system that data disks begin with.
func (s *Storage) copyTemplate(d Disk, at int64) (err error) {
	src, err := openTemplate(s.sys.Path(filepath.Join(filepath.Dir(s.template), filepath.Base(imagelayout.DataTemplate))))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	b := block.Buffer(4 << 20)
	for off := at; ; off += int64(len(b)) {
		n, err := io.ReadFull(src, b)
		if errors.Is(err, io.EOF) {
			return d.Flush()
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		clear(b[n:])
		if _, err := d.WriteAt(b, off); err != nil {
			return err
		}
	}
}

const setFSUUID = 0x4008662c // EXT4_IOC_SETFSUUID, _IOW('f', 44, struct fsuuid), of fs/ext4/ext4.h

// setUUID sets a new UUID on a mounted ext4.
func setUUID(dir string) (err error) {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	args := make([]byte, 8+16) // length and flags, then the UUID
	binary.NativeEndian.PutUint32(args, 16)
	rand.Read(args[8:]) // never fails
	args[14] = args[14]&0x0f | 0x40
	args[16] = args[16]&0x3f | 0x80
	if err := control(
		f,
		setFSUUID,
		unsafe.Pointer(&args[0]),
	); err != nil { //nolint:gosec // the kernel reads the structure
		return fmt.Errorf("give the file system a UUID: %w", err)
	}
	return nil
}
