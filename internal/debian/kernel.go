// Package debian finds kernels on this host and in Debian's packages, and unpacks packages into a cache. It installs
// nothing.
package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ingot-metal/ingot/internal/uki"
	"github.com/ingot-metal/ingot/internal/version"
)

// kernelMeta is the Debian package that depends on the newest kernel for virtual machines.
const kernelMeta = "linux-image-cloud-amd64"

// CacheEnv is the environment variable that overrides where kernels are kept.
const CacheEnv = "INGOT_LAB_CACHE"

// Kernel is a kernel on this host's disk.
type Kernel struct {
	// Release is what uname -r prints under it, such as 6.1.0-56-cloud-amd64.
	Release string
	// Image is the path of the bzImage.
	Image string
	// ModulesDir is the path of its lib/modules/<release>.
	ModulesDir string
}

// DefaultCacheDir is $INGOT_LAB_CACHE, else .cache/lab in the Go module that holds the working directory,
// else ingot/lab in the user's cache directory.
func DefaultCacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		return filepath.Abs(dir)
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w", err)
	}
	for dir := wd; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".cache", "lab"), nil
		}
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w", err)
	}
	return filepath.Join(dir, "ingot", "lab"), nil
}

// FindKernel returns the host's own cloud kernel if it has one, else the one unpacked in cacheDir. Without either it
// downloads Debian's package and unpacks it there. It installs nothing. Several processes may call it at once.
func FindKernel(ctx context.Context, cacheDir string) (Kernel, error) {
	root := filepath.Join(cacheDir, "kernel")
	// Looked for without the lock first: the cache may be another user's.
	for _, place := range []string{"/", root} {
		if k, ok := kernelUnder(place); ok {
			return k, nil
		}
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return Kernel{}, fmt.Errorf("make cache directory: %w", err)
	}
	unlock, err := lock(filepath.Join(cacheDir, "lock"))
	if err != nil {
		return Kernel{}, err
	}
	defer unlock()
	if k, ok := kernelUnder(root); ok {
		return k, nil
	}
	if err := download(ctx, cacheDir, root); err != nil {
		return Kernel{}, fmt.Errorf("get a kernel (%s): %w", kernelMeta, err)
	}
	if k, ok := kernelUnder(root); ok {
		return k, nil
	}
	return Kernel{}, fmt.Errorf("no cloud kernel with modules in %s after unpacking", root)
}

// kernelUnder finds the newest cloud kernel below root that is readable and whose modules are there.
func kernelUnder(root string) (Kernel, bool) {
	// The pattern is constant and well formed, which is all that Glob complains about.
	images, _ := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*-cloud-amd64"))
	slices.SortFunc(images, version.Compare)
	for _, path := range slices.Backward(images) {
		release := strings.TrimPrefix(filepath.Base(path), "vmlinuz-")
		k := Kernel{Release: release, Image: path, ModulesDir: filepath.Join(root, "lib", "modules", release)}
		if usable(k) {
			return k, true
		}
	}
	return Kernel{}, false
}

func usable(k Kernel) bool {
	for _, path := range []string{k.Image, filepath.Join(k.ModulesDir, "modules.builtin")} {
		f, err := os.Open(path)
		if err != nil {
			return false
		}
		f.Close()
	}
	return true
}

// InstalledKernel returns this host's own kernel: the one that runs if its files are here, else the last by version
// that has modules and is for the architecture.
func InstalledKernel(arch string) (Kernel, error) {
	return installedKernel("/", runningRelease(), arch)
}

func runningRelease() string {
	// Without it, the last kernel is taken.
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(text))
}

func installedKernel(root, running, arch string) (Kernel, error) {
	// The pattern is constant and well formed, which is all that Glob complains about.
	images, _ := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	slices.SortFunc(images, version.Compare)
	if i := slices.Index(images, filepath.Join(root, "boot", "vmlinuz-"+running)); i >= 0 {
		images = append(slices.Delete(images, i, i+1), filepath.Join(root, "boot", "vmlinuz-"+running))
	}
	for _, path := range slices.Backward(images) {
		if k, err := KernelAt(path, ""); err == nil && isFor(path, arch) {
			return k, nil
		}
	}
	return Kernel{}, fmt.Errorf("no kernel for %s with modules in /boot and /lib/modules; name one", arch)
}

func isFor(path, arch string) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	got, err := uki.Machine(data)
	return err == nil && got == arch
}

// KernelAt is the kernel with that image. Without modulesDir, its modules are looked for where packages put them: in
// lib/modules of the tree that has the image in boot, and in /lib/modules.
func KernelAt(image, modulesDir string) (Kernel, error) {
	release := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
	places := []string{modulesDir}
	if modulesDir == "" {
		tree := filepath.Dir(filepath.Dir(image))
		places = []string{filepath.Join(tree, "lib/modules", release), filepath.Join("/lib/modules", release)}
	}
	for _, dir := range places {
		k := Kernel{Release: filepath.Base(dir), Image: image, ModulesDir: dir}
		if usable(k) {
			return k, nil
		}
	}
	return Kernel{}, fmt.Errorf("no kernel at %s, or no modules.builtin in %s", image, strings.Join(places, " or "))
}

// download unpacks the kernel's package into root.
func download(ctx context.Context, cacheDir, root string) error {
	name, err := kernelPackage(ctx)
	if err != nil {
		return err
	}
	return unpackPackages(ctx, cacheDir, root, []string{name})
}

// kernelPackage asks apt what the meta package depends on. On a machine whose package lists are missing it
// fetches them once, if it may.
func kernelPackage(ctx context.Context) (string, error) {
	name, err := dependency(ctx)
	if err == nil || os.Geteuid() != 0 {
		return name, err
	}
	if _, err := run(ctx, "", "apt-get", "-q", "update"); err != nil {
		return "", err
	}
	return dependency(ctx)
}

func dependency(ctx context.Context) (string, error) {
	out, err := run(ctx, "", "apt-cache", "depends", "--important", kernelMeta)
	if err != nil {
		return "", err
	}
	return parseDepends(out)
}

// parseDepends finds the kernel among lines such as "  Depends: linux-image-6.1.0-56-cloud-amd64".
func parseDepends(out string) (string, error) {
	for line := range strings.Lines(out) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: ")
		if ok && strings.HasPrefix(name, "linux-image-") {
			return name, nil
		}
	}
	return "", fmt.Errorf("apt knows no kernel that %s depends on; run apt-get update", kernelMeta)
}

func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}

// lock holds an flock(2) lock until the returned function is called.
func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
