package vm_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/internal/debian"
	"github.com/ingot-metal/ingot/internal/ext4"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/vm"
)

// bootTimeout is generous: emulation shares its processors with whatever else runs here.
const bootTimeout = 3 * time.Minute

// parts are what all machines of the tests boot from. They are made once.
type parts struct {
	kernel debian.Kernel
	initrd string
}

var (
	sharedDir   string
	sharedParts = sync.OnceValues(buildParts)
)

func TestMain(m *testing.M) {
	code := 1
	dir, err := os.MkdirTemp("", "ingot-vm-")
	if err == nil {
		sharedDir = dir
		code = m.Run()
		err = os.RemoveAll(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildParts() (parts, error) {
	guest := filepath.Join(sharedDir, "guest")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", guest, "./testdata/guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return parts{}, fmt.Errorf("build guest: %w: %s", err, out)
	}
	cache, err := debian.DefaultCacheDir()
	if err != nil {
		return parts{}, err
	}
	k, err := debian.FindKernel(context.Background(), cache)
	if err != nil {
		return parts{}, err
	}
	initrd := filepath.Join(sharedDir, "initrd")
	return parts{k, initrd}, imagebuild.Build(imagebuild.Config{Init: guest, Kernel: k, Out: initrd})
}

// start boots a machine that follows the script, and shows its console if the test fails.
func start(t *testing.T, fw vm.Firmware, files map[string][]byte) *vm.VM {
	t.Helper()
	if err := vm.Available(fw); err != nil {
		t.Skipf("needs a virtual machine: %v", err)
	}
	p, err := sharedParts()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	disk := filepath.Join(dir, "state.img")
	if err := ext4.StateDisk(disk, files); err != nil {
		t.Fatal(err)
	}
	v, err := vm.Start(t.Context(), vm.Config{
		Name: "lab-1", Dir: dir, Kernel: p.kernel.Image, Initrd: p.initrd, StateDisk: disk, Firmware: fw,
		MAC: "52:54:00:ab:cd:ef",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Stop(); err != nil {
			t.Error(err)
		}
		if console, err := v.Serial(); t.Failed() {
			t.Logf("console (%v):\n%s", err, console)
		}
	})
	return v
}

// said is one line in which the guest announces itself.
type said map[string]string

var field = regexp.MustCompile(`(\w+)=(\S+)`)

// announcements waits until the guest has started n times.
func announcements(ctx context.Context, t *testing.T, v *vm.VM, n int) []said {
	t.Helper()
	text, err := v.WaitSerial(ctx, func(s string) bool { return len(parse(s)) >= n })
	if err != nil {
		t.Fatal(err)
	}
	return parse(text)
}

func parse(console string) []said {
	var all []said
	for line := range strings.Lines(console) {
		_, line, ok := strings.Cut(line, "GUEST step")
		if !ok || !strings.Contains(line, " end") {
			continue
		}
		one := said{}
		for _, m := range field.FindAllStringSubmatch("step"+line, -1) {
			one[m[1]] = m[2]
		}
		all = append(all, one)
	}
	return all
}

func TestVMReboots(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	home := listenForGuest(t)
	v := start(t, vm.Direct, map[string][]byte{
		"script": []byte("reboot call-home"),
		"home":   fmt.Appendf(nil, "10.0.2.2:%d\n", home.port),
	})
	if err := v.WaitEvent(ctx, "RESUME"); err != nil {
		t.Fatal(err)
	}
	began := v.Events()[0].Time() // the processor starts
	first := announcements(ctx, t, v, 1)[0]
	t.Logf("power-on to init's own work: %v (kernel says %s s)", time.Since(began).Round(time.Millisecond),
		first["uptime"])
	both := announcements(ctx, t, v, 2)
	t.Logf("and a whole reboot later: %v", time.Since(began).Round(time.Millisecond))

	if a, b := both[0]["boot_id"], both[1]["boot_id"]; a == b || len(a) != 36 || len(b) != 36 {
		t.Errorf("boot ids %q and %q, want two different ones", a, b)
	}
	if both[1]["step"] != "call-home" {
		t.Errorf("second boot does step %q: the state was lost", both[1]["step"])
	}
	if a, b := both[0]["machine_id"], both[1]["machine_id"]; a != b || len(a) != 32 {
		t.Errorf("machine-ids %q and %q, want one that lasts", a, b)
	}
	if both[0]["serial"] != "lab-1" || both[0]["hostname"] != "ingot-abcdef" {
		t.Errorf("serial %q, host name %q", both[0]["serial"], both[0]["hostname"])
	}
	if got := home.message(t); got != "kept\n" {
		t.Errorf("guest told the host %q, want what it wrote before the reboot", got)
	}
	if err := v.WaitReboots(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if n := v.Reboots(); n != 1 || !firstReset(t, v).ByGuest() {
		t.Errorf("%d reboots, events %+v; want one, by the guest", n, v.Events())
	}
	if n, err := vm.RebootsOf(filepath.Dir(v.SerialPath())); n != 1 || err != nil {
		t.Errorf("log of events says %d reboots, %v; want one", n, err)
	}
}

func firstReset(t *testing.T, v *vm.VM) vm.Event {
	t.Helper()
	for _, e := range v.Events() {
		if e.Name == "RESET" {
			return e
		}
	}
	t.Fatal("no RESET event")
	return vm.Event{}
}

// home is a server on the host's loopback that takes one message.
type home struct {
	port int
	got  chan string
	errs chan error
}

func listenForGuest(t *testing.T) home {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := home{l.Addr().(*net.TCPAddr).Port, make(chan string, 1), make(chan error, 1)}
	t.Cleanup(func() { l.Close() })
	task.Background("home", func() {
		message, err := receive(l)
		h.errs <- err
		h.got <- message
	})
	return h
}

func receive(l net.Listener) (string, error) {
	conn, err := l.Accept()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	data, err := io.ReadAll(conn)
	return string(data), err
}

func (h home) message(t *testing.T) string {
	t.Helper()
	if err := <-h.errs; err != nil {
		t.Fatal(err)
	}
	return <-h.got
}

func TestVMOutsideControl(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	v := start(t, vm.Direct, map[string][]byte{"script": []byte("crash wait wait")})

	got := announcements(ctx, t, v, 2)
	if got[0]["boot_id"] != got[1]["boot_id"] || v.Reboots() != 0 {
		t.Errorf("a crash of the program cost a reboot: %v", got)
	}
	if status, err := v.QueryStatus(ctx); err != nil || status != "running" {
		t.Errorf("status %q, %v", status, err)
	}
	if again, err := vm.Start(ctx, v.Config()); err == nil || again != nil {
		t.Error("a second machine was started in the same directory")
	}
	if err := v.SystemReset(ctx); err != nil {
		t.Fatal(err)
	}
	got = announcements(ctx, t, v, 3)
	if got[2]["boot_id"] == got[1]["boot_id"] {
		t.Error("reset did not change the boot id")
	}
	if v.Reboots() != 1 || firstReset(t, v).ByGuest() {
		t.Errorf("events %+v, want one reboot, not by the guest", v.Events())
	}
	if a, b := got[0]["machine_id"], got[2]["machine_id"]; a != b {
		t.Errorf("machine-id %q became %q in a reset", a, b)
	}
	pressPowerButton(ctx, t, v)
	console, err := v.Serial()
	if err != nil || !strings.Contains(console, "GUEST was asked to end") {
		t.Errorf("program was not asked to end (%v)", err)
	}
	if err := v.WaitEvent(ctx, "SHUTDOWN"); err != nil {
		t.Error(err)
	}
}

// pressPowerButton uses the second connection, as a script would. The press is repeated, as an impatient person
// would: the guest may not have found its button yet.
func pressPowerButton(ctx context.Context, t *testing.T, v *vm.VM) {
	t.Helper()
	mon, err := vm.Dial(ctx, filepath.Dir(v.SerialPath()))
	if err != nil {
		t.Fatal(err)
	}
	defer mon.Close()
	for off := false; !off; {
		if err := mon.Powerdown(ctx); err != nil {
			break // the machine is gone, or Wait returns the error
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		off = v.Wait(short) == nil
		cancel()
	}
	if err := v.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestVMPowersOffWhenProgramReturns(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	v := start(t, vm.Direct, map[string][]byte{
		"script":       []byte("exit"),
		"network.json": []byte(`{"hostname": "named", "address": "10.0.2.77/24"}`),
	})
	if err := v.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if got := announcements(ctx, t, v, 1)[0]; got["hostname"] != "named" {
		t.Errorf("host name %q", got["hostname"])
	}
}

func TestVMWithUEFIKeepsVariables(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	v := start(t, vm.UEFI, map[string][]byte{"script": []byte("boot-next wait")})
	got := announcements(ctx, t, v, 2)
	t.Logf("UEFI: kernel says %s s at init", got[0]["uptime"])
	if got[0]["efi"] != "true" || got[1]["efi"] != "true" {
		t.Errorf("no efivarfs: %v", got)
	}
	if _, set := got[0]["boot_next"]; set {
		t.Errorf("BootNext set before the guest did it: %v", got[0])
	}
	if got[1]["boot_next"] != "070000000000" {
		t.Errorf("BootNext %q after the reboot, want what the guest wrote", got[1]["boot_next"])
	}
}
