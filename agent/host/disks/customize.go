package disks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/internal/gpt"
)

// NextSystem is what the system that is written is given.
type NextSystem struct {
	// Files are those of its state partition.
	Files map[string][]byte
	// Seed is for its first boot, and InstanceID distinguishes this installation from every other.
	Seed       firstboot.Seed
	InstanceID string
	// PhoneHome is the URL that an agentless system posts to; "" for a system with the agent.
	PhoneHome string
}

// customizer adds to the image on a disk what its first boot needs.
type customizer struct {
	storage *Storage
	disk    Disk
	next    NextSystem
	out     image.Custom
}

// customize adds a configuration to an image that Ignition sets up. Else it finds the root file system by what it
// holds, and adds files to it. Where none can be mounted, cloud-init gets its seed on a partition of its own.
func (s *Storage) customize(
	ctx context.Context, d Disk, layout image.Layout, next NextSystem, mounts []firstboot.Mount,
) (image.Custom, error) {
	c := customizer{storage: s, disk: d, next: next}
	with := firstboot.Config{
		Seed:       next.Seed,
		InstanceID: next.InstanceID,
		MAC:        s.BootMAC,
		Network:    s.BootNetwork,
		Program:    s.Program,
		StateID:    layout.StateID,
		PhoneHome:  next.PhoneHome,
		Mirror:     isMirror(d),
		Mounts:     mounts,
	}
	images := layout.Partitions[:len(layout.Partitions):len(layout.Partitions)]
	if done, err := c.ignition(ctx, images, with); done || err != nil {
		return c.out, err
	}
	bounds := append(images, gpt.Partition{Offset: layout.End})
	var unread []string
	for _, p := range firstboot.Candidates(images) {
		if p.Name == image.StateName {
			continue
		}
		kind, _, err := c.fileSystem(p)
		if err != nil {
			return c.out, err
		}
		if !mountable(kind) {
			if kind != "" {
				unread = append(unread, fmt.Sprintf("partition %d holds %s", p.Number, kind))
			}
			continue
		}
		err = c.partition(ctx, p, kind, gpt.Room(bounds, p), with)
		switch {
		case err == nil:
			return c.out, nil
		case !errors.Is(err, firstboot.ErrNoSystem):
			return c.out, fmt.Errorf("add to partition %d (%s): %w", p.Number, kind, err)
		}
	}
	return c.withoutRoot(with, unread)
}

// withoutRoot leaves an image as it is that has no root file system which can be mounted.
func (c *customizer) withoutRoot(with firstboot.Config, unread []string) (image.Custom, error) {
	if with.Mirror || len(with.Mounts) > 0 {
		return c.out, fmt.Errorf("%w: a mirror and data disks need a root that the installer can mount%s",
			firstboot.ErrUnsupported, strings.Join(append([]string{""}, unread...), "; "))
	}
	if !with.Seed.Asks() && with.PhoneHome == "" {
		return c.out, nil
	}
	data, size, changes, err := with.Volume()
	if err != nil {
		return c.out, err
	}
	c.out.Volume = &image.Volume{Name: firstboot.VolumeName, Type: gpt.BasicData, Data: data, Size: size}
	c.out.System, c.out.Changes = "unknown, by a partition "+firstboot.VolumeName, changes
	for _, u := range unread {
		c.out.Warnings = append(c.out.Warnings, u+", which the installer does not mount: nothing was added to it")
	}
	return c.out, nil
}

func mountable(kind string) bool { return kind == "ext4" || kind == "xfs" || kind == "btrfs" }

// fileSystem reads what a partition holds, and its label, past every cache.
func (c *customizer) fileSystem(p gpt.Partition) (kind, label string, err error) {
	from := p.Offset / block.Alignment * block.Alignment
	b := block.Buffer(firstboot.ProbeSize + block.Alignment)
	if p.Offset+int64(len(b)) > c.disk.Size() {
		return "", "", nil
	}
	if _, err := c.disk.ReadAt(b, from); err != nil {
		return "", "", fmt.Errorf("read partition %d: %w", p.Number, err)
	}
	b = b[p.Offset-from:]
	return firstboot.FileSystem(b), firstboot.Label(b), nil
}

// minFree is what must stay free in the file system for its first boot, in bytes.
const minFree = 16 << 20

// partition adds to the system on a partition; firstboot.ErrNoSystem where it holds none.
func (c *customizer) partition(ctx context.Context, p gpt.Partition, kind string, room int64, with firstboot.Config,
) error {
	var s firstboot.System
	var subtree string
	var files []firstboot.File
	err := c.disk.Part(ctx, p.Offset, p.Size, func(device string) error {
		return c.mountedAs(kind, device, true, func(dir string) (err error) {
			if s, subtree, err = find(dir, kind); err != nil {
				return err
			}
			files, err = s.Files(with)
			return err
		})
	})
	if err != nil || len(files) == 0 {
		return err
	}
	size, must, err := c.growth(ctx, p, kind, room, files, s)
	if err != nil {
		return err
	}
	err = c.put(ctx, p, size, kind, subtree, files, func(dir string) error {
		if err := c.grow(p, dir, kind, size); err != nil && must {
			return err
		} else if err != nil {
			c.out.Warnings = append(c.out.Warnings, fmt.Sprintf("the root stays as small as the image: %v", err))
		}
		return nil
	})
	c.out.System = fmt.Sprintf("%s on partition %d (%s)", s.ID, p.Number, kind)
	return err
}

// find returns the system in a file system, and the directory that is its root.
func find(dir, kind string) (s firstboot.System, subtree string, err error) {
	for _, subtree = range firstboot.Subtrees(kind) {
		err = inTree(dir, subtree, func(tree *os.Root) (err error) {
			s, err = firstboot.Inspect(tree)
			return err
		})
		if err == nil || !errors.Is(err, firstboot.ErrNoSystem) && !errors.Is(err, fs.ErrNotExist) {
			return s, subtree, err
		}
	}
	return s, "", firstboot.ErrNoSystem
}

func inTree(dir, subtree string, fn func(tree *os.Root) error) (err error) {
	top, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, top.Close()) }()
	if subtree == "." {
		return fn(top)
	}
	tree, err := top.OpenRoot(subtree)
	if err != nil {
		return err
	}
	return errors.Join(fn(tree), tree.Close())
}

// growth decides how large the root partition becomes here, and reports whether it must. A system that grows it at its
// first boot does so itself, unless the added files do not fit before.
func (c *customizer) growth(
	ctx context.Context, p gpt.Partition, kind string, room int64, files []firstboot.File, s firstboot.System,
) (size int64, must bool, err error) {
	need, err := firstboot.Size(files)
	if err != nil {
		return 0, false, err
	}
	need += minFree
	var free int64
	err = c.disk.Part(ctx, p.Offset, p.Size, func(device string) error {
		return c.mountedAs(kind, device, true, func(dir string) error {
			var st unix.Statfs_t
			err := unix.Statfs(dir, &st)
			free = int64(st.Bavail) * st.Bsize
			return err
		})
	})
	switch must = free < need; {
	case err != nil:
		return 0, false, err
	case room <= p.Size && must:
		return 0, must, fmt.Errorf("%w: %d MiB are free, %d are needed, and the partition cannot grow",
			firstboot.ErrUnsupported, free>>20, need>>20)
	case must, !s.CloudInit, !s.Growpart:
		return room, must, nil
	}
	return p.Size, false, nil
}

// grow makes the file system as large as its partition will be.
func (c *customizer) grow(p gpt.Partition, dir, kind string, size int64) error {
	if size <= p.Size {
		return nil
	}
	if err := grow(dir, kind, size); err != nil {
		return err
	}
	c.out.Grown = map[int]int64{p.Number: size}
	return nil
}

// mountedAs mounts a file system of a kind whose driver may have to be inserted first.
func (c *customizer) mountedAs(kind, device string, readOnly bool, fn func(dir string) error) error {
	if err := c.storage.loadModule("fs-" + kind); err != nil {
		return fmt.Errorf("load the driver of %s: %w", kind, err)
	}
	return mounted(kind, device, readOnly, fn)
}
