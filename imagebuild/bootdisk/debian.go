package bootdisk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	// minDebianESPMiB is what FAT32 needs at least, with room to spare.
	minDebianESPMiB = 48
	// spareMiB is the space that ext4 keeps beside the files and their metadata. It has room for the files that the first
	// boot writes before the file system has grown.
	spareMiB = 40
	// bytesPerInode is what mke2fs takes for file systems that are not small. This one is small only until it has grown
	// to its disk, where the ratio stays: at that of small ones a sixteenth of the disk would hold inodes.
	bytesPerInode = 16384
	// minDebianMiB is what no Debian with a kernel fits below.
	minDebianMiB = 400
)

// ErrNotRoot is returned when the build does not run as root.
var ErrNotRoot = errors.New("a Debian image is built by root: its files belong to several users")

// DebianConfig is the content of a Debian image.
type DebianConfig struct {
	// Suite is bookworm when empty. Its security updates are included, unless Mirrors say something else.
	Suite string
	// Mirrors are lines of sources.list or URLs, as mmdebstrap takes them.
	Mirrors []string
	// KernelPackage is linux-image-cloud-amd64 when empty, which has drivers for virtual machines only;
	// linux-image-amd64 has those of real machines.
	KernelPackage string
	// Packages are installed beside those that the image needs.
	Packages []string
	// AgentDeb is the path of the package ingot-agent.
	AgentDeb string
	// Hooks are shell commands that change the system before it is packed; "$1" is its root directory.
	Hooks []string
	// Cmdline is DefaultCmdline when empty; the root file system is added. It carries no secrets.
	Cmdline string
	// SizeMiB is the size that the files need when 0. The root file system grows at its first boot. Every byte of an image
	// is written and read back, so that spare room costs time.
	SizeMiB int64
	// Out is the file to write, compressed when its name ends in .zst.
	Out string
	// Progress gets a line for each stage.
	Progress io.Writer
	Clock    clock.Clock
}

// basePackages are what a system needs that the agent manages. A time source is among them because certificates are
// valid for hours.
var basePackages = []string{
	"systemd-sysv", "udev", "dbus", "libpam-systemd", "systemd-resolved", "systemd-timesyncd", "iproute2", "nftables",
	"ca-certificates", "e2fsprogs", "initramfs-tools", "zstd", "kmod", "procps",
	// In the place of usrmerge, which brings all of Perl along to convert what this tree never was.
	"usr-is-merged",
}

// mergedUsr are mmdebstrap's hooks that lay /bin, /lib and /sbin out as links into /usr from the start.
const mergedUsr = "/usr/share/mmdebstrap/hooks/merged-usr"

// Debian builds an image with Debian and the agent. It fetches packages.
func Debian(ctx context.Context, cfg DebianConfig) (r Result, err error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return r, err
	}
	// Beside the result, because /tmp may be small.
	dir, err := os.MkdirTemp(filepath.Dir(cfg.Out), ".ingot-image-*")
	if err != nil {
		return r, fmt.Errorf("make working directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := debianBuild{DebianConfig: cfg, tree: filepath.Join(dir, "tree"), dir: dir, began: cfg.Clock.Now()}
	for _, stage := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"install packages", b.bootstrap}, {"configure", b.configure}, {"measure", b.measure},
		{"make EFI system partition", b.makeESP}, {"make root file system", b.makeRoot},
	} {
		b.say("%s", stage.name)
		if err := stage.do(ctx); err != nil {
			return r, err
		}
	}
	b.say("write %s", cfg.Out)
	r, err = assemble(ctx, cfg.Out, b.seed, []part{
		espPart(b.path("esp.img"), b.espMiB),
		{name: rootName, kind: typeRoot, file: b.path("root.img"), size: b.rootMiB * mib},
	})
	b.say("done")
	return r, err
}

func (cfg *DebianConfig) setDefaults() {
	if cfg.Suite == "" {
		cfg.Suite = "bookworm"
	}
	if cfg.KernelPackage == "" {
		cfg.KernelPackage = "linux-image-cloud-amd64"
	}
	if cfg.Cmdline == "" {
		cfg.Cmdline = DefaultCmdline
	}
	if cfg.Progress == nil {
		cfg.Progress = io.Discard
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real()
	}
}

func (cfg DebianConfig) check() error {
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	if cfg.SizeMiB != 0 && cfg.SizeMiB < minDebianMiB {
		return fmt.Errorf("%d MiB are too small for a Debian image", cfg.SizeMiB)
	}
	if _, err := os.Stat(cfg.AgentDeb); err != nil {
		return fmt.Errorf("find the package ingot-agent: %w", err)
	}
	return available([]string{"mmdebstrap", "dpkg-deb", "mformat", "mcopy", "mmd", "syslinux", "mke2fs"},
		[]string{bootCodeFile, systemdBootFile})
}

// debianBuild is one build on its way.
type debianBuild struct {
	DebianConfig
	dir, tree string
	began     time.Time
	// seed is what the identities on the disk are derived from.
	seed string
	// espMiB and rootMiB are the sizes of the two partitions.
	espMiB, rootMiB int64
}

func (b *debianBuild) path(name string) string { return filepath.Join(b.dir, name) }

func (b *debianBuild) say(format string, args ...any) {
	fmt.Fprintf(b.Progress, "%6.1f s  %s\n", b.Clock.Now().Sub(b.began).Seconds(), fmt.Sprintf(format, args...))
}

func (b *debianBuild) bootstrap(ctx context.Context) error {
	args := []string{
		"--quiet", "--mode=root", "--variant=apt", "--format=directory",
		"--include=" + strings.Join(slices.Concat(basePackages, []string{b.KernelPackage}, b.Packages), ","),
		"--hook-dir=" + mergedUsr,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright",
		// The host's own name for itself must not become everybody's.
		"--customize-hook=rm -f \"$1/etc/hostname\"",
		"--customize-hook=copy-in " + quote(b.AgentDeb) + " /var/cache",
		"--customize-hook=chroot \"$1\" sh -c 'dpkg --install /var/cache/" + filepath.Base(b.AgentDeb) +
			" && rm /var/cache/*.deb'",
	}
	for _, h := range b.Hooks {
		args = append(args, "--customize-hook="+h)
	}
	args = append(args, b.Suite, b.tree)
	if err := runMounting(ctx, "mmdebstrap", append(args, b.Mirrors...)...); err != nil {
		return fmt.Errorf("install packages: %w", err)
	}
	return nil
}

// quote is for mmdebstrap, which takes hooks apart like a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// boot finds what the kernel's package has left in /boot.
func (b *debianBuild) boot() (kernel, initrd string, err error) {
	// The patterns are constant and well formed, which is all that Glob complains about.
	kernels, _ := filepath.Glob(filepath.Join(b.tree, "boot", "vmlinuz-*"))
	initrds, _ := filepath.Glob(filepath.Join(b.tree, "boot", "initrd.img-*"))
	if len(kernels) != 1 || len(initrds) != 1 {
		return "", "", fmt.Errorf("the tree has %d kernels and %d initramfs images; one of each is needed", len(kernels),
			len(initrds))
	}
	return kernels[0], initrds[0], nil
}

// configure writes what makes a tree of packages a machine's system.
func (b *debianBuild) configure(context.Context) error {
	kernel, initrd, err := b.boot()
	if err != nil {
		return err
	}
	h := sha256.New()
	for _, name := range []string{kernel, initrd, filepath.Join(b.tree, "var/lib/dpkg/status")} {
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("configure: %w", err)
		}
		h.Write(data)
	}
	b.seed = hex.EncodeToString(h.Sum(nil))
	if err := configureTree(b.tree, b.uuid(espName), b.uuid(rootName)); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return nil
}

// measure sizes the ESP for two kernels and their initramfs images, since one is replaced while the other is there. The
// root file system gets the rest, or the size that its files need.
func (b *debianBuild) measure(context.Context) error {
	kernel, initrd, err := b.boot()
	if err != nil {
		return err
	}
	var boot int64
	for _, name := range []string{kernel, initrd} {
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("measure: %w", err)
		}
		boot += info.Size()
	}
	b.espMiB = max(minDebianESPMiB, 2*boot/mib*9/8+8)
	tree, err := treeSize(b.tree)
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	b.rootMiB = tree/mib*17/16 + spareMiB
	if b.SizeMiB == 0 {
		return nil
	}
	if need := b.rootMiB + b.espMiB + 2; b.SizeMiB < need {
		return fmt.Errorf("%d MiB are too small for these packages: %d are needed", b.SizeMiB, need)
	}
	b.rootMiB = b.SizeMiB - b.espMiB - 2
	return nil
}

// treeSize is the room that files take in blocks of 4 KiB, with an inode each.
func treeSize(dir string) (sum int64, err error) {
	const block, inode = 4096, 256
	err = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		sum += inode
		if info.Mode().IsRegular() || info.IsDir() {
			sum += (info.Size() + block - 1) / block * block
		}
		return nil
	})
	return sum, err
}

func (b *debianBuild) uuid(name string) string { return guid(b.seed, name).String() }

func (b *debianBuild) makeESP(ctx context.Context) error {
	kernel, initrd, err := b.boot()
	if err != nil {
		return err
	}
	return makeESP(ctx, b.path("esp.img"), b.espMiB, b.seed[:8], system{
		title: "Debian", kernel: kernel, initrd: initrd, cmdline: "root=PARTUUID=" + b.uuid(rootName) + " ro " + b.Cmdline,
	})
}

func (b *debianBuild) makeRoot(ctx context.Context) error {
	img := b.path("root.img")
	if err := errors.Join(os.WriteFile(img, nil, 0o600), os.Truncate(img, b.rootMiB*mib)); err != nil {
		return fmt.Errorf("make root file system: %w", err)
	}
	id := guid(b.seed, "root file system").String()
	_, err := run(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "1", "-i", fmt.Sprint(bytesPerInode), "-L",
		rootName, "-U", id,
		"-E", "hash_seed="+id+",lazy_itable_init=0,lazy_journal_init=0", "-d", b.tree, img)
	if err != nil {
		return fmt.Errorf("make root file system of %d MiB: %w", b.rootMiB, err)
	}
	return nil
}
