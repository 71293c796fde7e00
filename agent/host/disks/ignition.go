package disks

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/internal/gpt"
)

// ignition adds a configuration to an image that Ignition sets up, and reports whether it is one. It finds the file
// system by its label and by what it holds.
func (c *customizer) ignition(ctx context.Context, images []gpt.Partition, with firstboot.Config) (bool, error) {
	for _, p := range images {
		if p.Offset < gpt.HeadSize {
			continue
		}
		kind, label, err := c.fileSystem(p)
		if err != nil {
			return false, err
		}
		if !mountable(kind) || !firstboot.MayConfigure(label) {
			continue
		}
		vendor, err := c.configure(ctx, p, kind, label, images, with)
		if err != nil {
			return true, fmt.Errorf("add to partition %d (%s): %w", p.Number, kind, err)
		}
		if vendor != nil {
			c.out.System = fmt.Sprintf("%s by Ignition on partition %d (%s)", vendor.Name, p.Number, kind)
			for i := range c.out.Changes {
				c.out.Changes[i].Path = label + ":" + c.out.Changes[i].Path
			}
			return true, nil
		}
	}
	return false, nil
}

// configure writes the configuration where the file system is that of a vendor; nil where it is not.
func (c *customizer) configure(
	ctx context.Context, p gpt.Partition, kind, label string, images []gpt.Partition, with firstboot.Config,
) (v *firstboot.Vendor, err error) {
	var files []firstboot.File
	err = c.disk.Part(ctx, p.Offset, p.Size, func(device string) error {
		return c.mountedAs(kind, device, true, func(dir string) error {
			return inTree(dir, ".", func(tree *os.Root) error {
				if v = firstboot.VendorOf(label, tree, images); v == nil {
					return nil
				}
				if files, err = v.Ignition(tree, with); err != nil {
					return err
				}
				return fits(dir, files)
			})
		})
	})
	if err != nil || v == nil {
		return v, err
	}
	return v, c.put(ctx, p, p.Size, kind, ".", files, nil)
}

// fits refuses files for which the file system has no room. Its partition is not grown: others follow it.
func fits(dir string, files []firstboot.File) error {
	need, err := firstboot.Size(files)
	if err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("ask for its free room: %w", err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return fmt.Errorf("%w: %d MiB are free, %d are needed", firstboot.ErrUnsupported, free>>20, need>>20+1)
	}
	return nil
}

// put writes the files into a file system, and reads them back through another mount. before has the mounted directory
// first; nil: nothing has.
func (c *customizer) put(
	ctx context.Context, p gpt.Partition, size int64, kind, subtree string, files []firstboot.File,
	before func(dir string) error,
) error {
	return c.disk.Part(ctx, p.Offset, size, func(device string) error {
		err := c.mountedAs(kind, device, false, func(dir string) error {
			if before != nil {
				if err := before(dir); err != nil {
					return err
				}
			}
			return inTree(dir, subtree, func(tree *os.Root) (err error) {
				c.out.Changes, err = firstboot.Write(tree, files)
				return err
			})
		})
		if err != nil {
			return err
		}
		return c.mountedAs(kind, device, true, func(dir string) error {
			return inTree(dir, subtree, func(tree *os.Root) error { return firstboot.Verify(tree, c.out.Changes) })
		})
	})
}
