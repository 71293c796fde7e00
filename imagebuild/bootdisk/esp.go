package bootdisk

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	espName  = "INGOT-ESP"
	rootName = "INGOT-ROOT"

	// Where Debian's packages put what boots a disk.
	bootCodeFile    = "/usr/lib/syslinux/mbr/gptmbr.bin"              // syslinux-common
	systemdBootFile = "/usr/lib/systemd/boot/efi/systemd-bootx64.efi" // systemd-boot-efi

	kernelPath = "ingot/vmlinuz"
	initrdPath = "ingot/initrd"
)

// system is what an EFI system partition starts.
type system struct {
	title, cmdline string
	// kernel and initrd are paths of files.
	kernel, initrd string
}

// makeESP makes a FAT32 file system of sizeMiB in the file img that starts the system by syslinux and by systemd-boot.
func makeESP(ctx context.Context, img string, sizeMiB int64, serial string, s system) error {
	if err := format(ctx, img, sizeMiB, serial); err != nil {
		return err
	}
	tree, err := os.MkdirTemp(filepath.Dir(img), "esp-*")
	if err != nil {
		return fmt.Errorf("fill EFI system partition: %w", err)
	}
	for name, text := range s.configuration() {
		if err := writeFile(filepath.Join(tree, name), text); err != nil {
			return fmt.Errorf("fill EFI system partition: %w", err)
		}
	}
	for name, from := range map[string]string{
		"EFI/BOOT/BOOTX64.EFI": systemdBootFile, kernelPath: s.kernel, initrdPath: s.initrd,
	} {
		if err := linkFile(from, filepath.Join(tree, name)); err != nil {
			return fmt.Errorf("fill EFI system partition: %w", err)
		}
	}
	if err := copyTree(ctx, img, tree); err != nil {
		return err
	}
	if _, err := run(ctx, "syslinux", "--install", img); err != nil {
		return fmt.Errorf("install syslinux: %w", err)
	}
	return stampFAT(img)
}

// format makes the file system of the ESP, with the partition's place on its disk, which a BIOS's boot code reads
// there.
func format(ctx context.Context, img string, sizeMiB int64, serial string) error {
	if err := os.WriteFile(img, nil, 0o600); err != nil {
		return fmt.Errorf("make EFI system partition: %w", err)
	}
	if err := os.Truncate(img, sizeMiB*mib); err != nil {
		return fmt.Errorf("make EFI system partition: %w", err)
	}
	_, err := run(ctx, "mformat", "-i", img, "-F", "-c", "1", "-h", "255", "-s", "63", "-T",
		fmt.Sprint(sizeMiB*mib/sector),
		"-H", fmt.Sprint(mib/sector), "-N", serial, "-v", espName, "::")
	if err != nil {
		return fmt.Errorf("format EFI system partition: %w", err)
	}
	return nil
}

// copyTree copies in the order of names, so that files always lie in the same places.
func copyTree(ctx context.Context, img, tree string) error {
	files := map[string]string{}
	dirs := map[string]bool{}
	err := filepath.WalkDir(tree, func(p string, d os.DirEntry, err error) error {
		rel, relErr := filepath.Rel(tree, p)
		switch {
		case err != nil:
			return err
		case relErr != nil || rel == ".":
			return relErr
		case d.IsDir():
			dirs[rel] = true
		default:
			files[rel] = p
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("fill EFI system partition: %w", err)
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if _, err := run(ctx, "mmd", "-i", img, "::/"+dir); err != nil {
			return fmt.Errorf("fill EFI system partition: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, err := run(ctx, "mcopy", "-i", img, files[name], "::/"+name); err != nil {
			return fmt.Errorf("fill EFI system partition: %w", err)
		}
	}
	return nil
}

// configuration returns the files of both boot loaders. Neither waits.
func (s system) configuration() map[string]string {
	return map[string]string{
		"syslinux.cfg": "DEFAULT ingot\nPROMPT 0\nTIMEOUT 0\nLABEL ingot\n  KERNEL /" + kernelPath + "\n  INITRD /" +
			initrdPath +
			"\n  APPEND " + s.cmdline + "\n",
		"loader/loader.conf": "timeout 0\ndefault ingot.conf\neditor no\n",
		"loader/entries/ingot.conf": "title " + s.title + "\nlinux /" + kernelPath + "\ninitrd /" + initrdPath +
			"\noptions " + s.cmdline + "\n",
	}
}

func writeFile(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

func linkFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// tools are the programs used, and the Debian packages that have them.
var tools = map[string]string{
	"mformat": "mtools", "mcopy": "mtools", "mmd": "mtools", "syslinux": "syslinux", "mke2fs": "e2fsprogs",
	"mmdebstrap": "mmdebstrap", "dpkg-deb": "dpkg",
}

// available returns an error with the packages that are missing for the programs and files.
func available(programs, files []string) error {
	missing := map[string]bool{}
	for _, p := range programs {
		if _, err := lookTool(p); err != nil {
			missing[tools[p]] = true
		}
	}
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			missing[map[string]string{bootCodeFile: "syslinux-common", systemdBootFile: "systemd-boot-efi"}[f]] = true
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("install the packages %s", strings.Join(slices.Sorted(maps.Keys(missing)), " "))
	}
	return nil
}

// lookTool looks beyond PATH, because an ordinary user's PATH lacks /usr/sbin on Debian.
func lookTool(name string) (string, error) {
	for _, try := range []string{name, path.Join("/usr/sbin", name), path.Join("/sbin", name)} {
		if found, err := exec.LookPath(try); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s not found: install the package %s", name, tools[name])
}
