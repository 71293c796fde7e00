package hosttest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/debian"
)

const (
	VMVariable = "INGOT_TEST_IN_VM"
	// NetworkdVariable is set where a networkd of the test's own runs, or must be started.
	NetworkdVariable = "INGOT_TEST_WITH_NETWORKD"
	// VMTime is for a machine that does much else; alone it takes one to two minutes.
	VMTime = 15 * time.Minute
)

// vmModules are what the distribution's kernel does not have built in, with their dependencies.
var vmModules = []string{
	"virtio_pci",
	"virtio_net",
	"veth",
	"bonding",
	"8021q",
	"bridge",
	"virtio_blk",
	"raid1",
	"nf_tables",
	"nft_ct",
	"nft_limit",
	"nft_chain_nat",
	"nft_nat",
}

const vmInit = `#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs -o ro sysfs /sys
$b mount -t devtmpfs dev /dev
$b mount -t tmpfs -o mode=1777 tmpfs /tmp
$b ln -s /run /var/run
for m in $($b cat /modules); do $b insmod "$m" || echo "cannot insert $m"; done
[ ! -b /dev/vda ] || $b mount -t ext4 /dev/vda /disk
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ %s=1 %s=1 %s
/host.test -test.run='^%s$' -test.v -test.timeout=%s
echo "TEST ENDED $?"
$b poweroff -f
`

// InVM runs the calling test again as root of a virtual machine, beside a systemd-networkd of its own. The
// distribution's kernel has bonds and VLANs, and the network cards have permanent addresses. It returns true in there,
// after prepare; the caller returns when it is false.
func InVM(t *testing.T, prepare func(*testing.T)) bool {
	t.Helper()
	return InVMWith(t, VMRun{Limit: VMTime}, prepare)
}

// InVMWith is InVM in a machine with more.
func InVMWith(t *testing.T, r VMRun, prepare func(*testing.T)) bool {
	t.Helper()
	if os.Getenv(VMVariable) == "1" {
		prepare(t)
		return true
	}
	out, err := RunVM(t, r)
	if err != nil || !strings.Contains(out, "TEST ENDED 0") {
		t.Fatalf("in the machine: %v\n%s", err, out)
	}
	return false
}

// VMRun is one start of a machine.
type VMRun struct {
	Env   string // variables for the test in there
	Limit time.Duration
	More  []string     // arguments of qemu(1)
	Line  func(string) // is called with each line of the console; may be nil
	// Unpacked is the root of Debian packages, and Programs are those of its programs that the machine has, by path.
	Unpacked string
	Programs []string
}

// RunVM runs the calling test in a machine, and returns its console's output.
func RunVM(t *testing.T, r VMRun) (string, error) {
	t.Helper()
	initrd := filepath.Join(t.TempDir(), "initrd")
	kernel := WriteInitrd(t, initrd, r)
	if len(r.More) == 0 {
		r.More = []string{"-no-reboot"}
	}
	cmd := exec.CommandContext(t.Context(), "qemu-system-x86_64",
		append(r.More, "-accel", "tcg", "-machine", "q35", "-smp", "1", "-m", "2048",
			"-cpu", "qemu64,+rdrand,+ssse3,+sse4.1,+sse4.2", "-display", "none", "-serial", "stdio", "-nodefaults",
			// Its clock counts instructions, so that what a program waits for does not end sooner on a busy machine.
			"-icount", "shift=3,sleep=off", "-rtc", "clock=vm",
			"-kernel", kernel, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1",
			"-nic", "user,model=virtio-net-pci,mac=52:54:00:00:00:01,restrict=on",
			"-nic", "user,model=virtio-net-pci,mac=52:54:00:00:00:02,restrict=on")...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	ctx, cancel := context.WithTimeout(t.Context(), r.Limit)
	defer cancel()
	return RunUntil(ctx, cmd, r.Line)
}

// RunUntil returns the output of the machine's console. line, unless nil, is called with each line at once.
func RunUntil(ctx context.Context, cmd *exec.Cmd, line func(string)) (string, error) {
	out := console{line: line}
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start the machine (apt-get install qemu-system-x86): %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	defer stop()
	err := cmd.Wait()
	return out.said.String(), err
}

// console keeps the output of a machine. It is no bytes.Buffer, whose ReadFrom would go round Write.
type console struct {
	said bytes.Buffer
	line func(string)
	told int // bytes of lines that were given to line
}

func (c *console) Write(p []byte) (int, error) {
	n, err := c.said.Write(p)
	for c.line != nil {
		end := bytes.IndexByte(c.said.Bytes()[c.told:], '\n')
		if end < 0 {
			break
		}
		c.line(strings.TrimRight(string(c.said.Bytes()[c.told:c.told+end]), "\r"))
		c.told += end + 1
	}
	return n, err
}

// WriteInitrd writes the file system of the machine: this test, what networkd and ip need, busybox and kernel modules.
func WriteInitrd(t *testing.T, path string, r VMRun) (kernel string) {
	t.Helper()
	cache, err := debian.DefaultCacheDir()
	Must(t, err)
	k, err := debian.FindKernel(t.Context(), cache)
	Must(t, err)
	f, err := os.Create(path)
	Must(t, err)
	w := &cpio{t: t, w: bufio.NewWriter(f), seen: map[string]bool{}}
	for _, dir := range []string{"dev", "proc", "sys", "tmp", "run", "etc", "var", "root", "disk"} {
		w.dir(dir)
	}
	w.data("init", fmt.Appendf(nil, vmInit, VMVariable, NetworkdVariable, r.Env, t.Name(), r.Limit-30*time.Second), 0o755)
	w.file("/bin/busybox", "bin/busybox")
	w.program(program(t), "host.test")
	for _, name := range []string{"/lib/systemd/systemd-networkd", "/usr/bin/dbus-daemon", "/usr/bin/ip", "/usr/bin/sh",
		"/usr/bin/sleep", "/usr/bin/cat", "/usr/bin/nsenter", "/usr/bin/tr", "/usr/sbin/nft"} {
		w.program(name, name[1:])
	}
	addIfupdown(t, w, cache)
	for _, name := range r.Programs {
		w.programOf(r.Unpacked, filepath.Join(r.Unpacked, name), name)
	}
	for _, name := range []string{"/etc/passwd", "/etc/group", "/etc/nsswitch.conf"} {
		w.file(name, name[1:])
	}
	w.data("etc/machine-id", []byte("0123456789abcdef0123456789abcdef\n"), 0o644)
	modules := kernelModules(t, k)
	for _, m := range modules {
		w.file(filepath.Join(k.ModulesDir, m), m)
	}
	w.data("modules", []byte("/"+strings.Join(modules, "\n/")+"\n"), 0o644)
	w.data("TRAILER!!!", nil, 0)
	Must(t, w.w.Flush())
	Must(t, f.Close())
	return k.Image
}

// program returns the file of the calling test's program, without the race detector: an emulated processor takes
// several times as long with it.
func program(t *testing.T) string {
	t.Helper()
	if !raced {
		return os.Args[0]
	}
	file := filepath.Join(t.TempDir(), "host.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-trimpath", "-buildvcs=false", "-tags",
		"grpcnotrace", "-o", file, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the test's program: %v\n%s", err, out)
	}
	return file
}

// addIfupdown adds Debian's ifup and what it runs.
func addIfupdown(t *testing.T, w *cpio, cache string) {
	t.Helper()
	root, err := debian.UnpackPackages(t.Context(), cache, "ifupdown")
	Must(t, err)
	for _, name := range []string{"ifup", "ifdown", "ifquery"} { // which are one program
		w.program(filepath.Join(root, "sbin/ifup"), "usr/sbin/"+name)
	}
	w.file(filepath.Join(root, "lib/ifupdown/settle-dad.sh"), "lib/ifupdown/settle-dad.sh")
	w.program("/usr/bin/sh", "bin/sh")
	for _, name := range []string{"/usr/bin/run-parts", "/usr/sbin/sysctl", "/usr/bin/grep", "/usr/bin/sort",
		"/usr/bin/seq", "/usr/bin/wc", "/usr/bin/rm"} {
		w.program(name, name[1:])
	}
}

// kernelModules returns the files of vmModules, below the kernel's folder of modules, in the order in which they are
// inserted (depmod(8), modules.dep). A kernel that is unpacked and not installed has no such file; depmod returns its
// content.
func kernelModules(t *testing.T, k debian.Kernel) []string {
	t.Helper()
	root := strings.TrimSuffix(k.ModulesDir, filepath.Join("lib/modules", k.Release))
	text, err := exec.CommandContext(t.Context(), "/sbin/depmod", "--dry-run", "--basedir", root, k.Release).Output()
	Must(t, err)
	var out []string
	seen := map[string]bool{}
	for _, name := range vmModules {
		line := regexp.MustCompile(`(?m)^(\S*/` + name + `\.ko\S*):(.*)$`).FindStringSubmatch(string(text))
		if line == nil {
			t.Fatalf("%s has no module %s", k.Release, name)
		}
		needs := strings.Fields(line[2])
		for i := len(needs) - 1; i >= -1; i-- {
			m := line[1]
			if i >= 0 {
				m = needs[i]
			}
			if !seen[m] {
				out = append(out, m)
			}
			seen[m] = true
		}
	}
	return out
}

// cpio writes an archive in the format "newc" (cpio(5)), which the kernel unpacks.
type cpio struct {
	t    *testing.T
	w    *bufio.Writer
	seen map[string]bool
	ino  int
}

func (c *cpio) entry(name string, mode int, data []byte) {
	c.t.Helper()
	c.ino++
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", c.ino, mode, 0, 0, 1, 0, len(data),
		0, 0, 0, 0, len(name)+1, 0)
	pad := func(n int) string { return strings.Repeat("\x00", (4-n%4)%4) }
	_, err := io.WriteString(c.w, header+name+"\x00"+pad(len(header)+len(name)+1))
	Must(c.t, err)
	_, err = c.w.Write(data)
	Must(c.t, err)
	_, err = io.WriteString(c.w, pad(len(data)))
	Must(c.t, err)
}

func (c *cpio) dir(name string) {
	if name == "." || c.seen[name] {
		return
	}
	c.dir(filepath.Dir(name))
	c.seen[name] = true
	c.entry(name, unix.S_IFDIR|0o755, nil)
}

func (c *cpio) data(name string, data []byte, mode int) {
	if c.seen[name] {
		return
	}
	c.dir(filepath.Dir(name))
	c.seen[name] = true
	c.entry(name, unix.S_IFREG|mode, data)
}

func (c *cpio) file(source, name string) {
	c.t.Helper()
	b, err := os.ReadFile(source)
	Must(c.t, err)
	c.data(name, b, 0o755)
}

// program adds a program and its libraries, where ldd(1) finds them.
func (c *cpio) program(source, name string) { c.programOf("/", source, name) }

// programOf is program where some of the libraries are below root.
func (c *cpio) programOf(root, source, name string) {
	c.t.Helper()
	c.file(source, name)
	ldd := exec.CommandContext(c.t.Context(), "ldd", source)
	ldd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(root, "usr/lib/x86_64-linux-gnu"))
	out, err := ldd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "not a dynamic executable") {
		c.t.Fatalf("ldd %s: %v\n%s", source, err, out)
	}
	for _, lib := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
		c.file(lib[1], strings.TrimPrefix(strings.TrimPrefix(lib[1], root), "/"))
	}
}
