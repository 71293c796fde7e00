package bootdisk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/internal/debian"
	"github.com/ingot-metal/ingot/internal/ext4"
	"github.com/ingot-metal/ingot/internal/gpt"
	"github.com/ingot-metal/ingot/internal/uki"
	"github.com/ingot-metal/ingot/lab/vm"
)

// bootTimeout is generous: emulation shares its processors with whatever else runs here.
const bootTimeout = 3 * time.Minute

// built is what the machines of all tests start from. It is made once.
type built struct {
	guest  string
	kernel debian.Kernel
	tiny   Result
}

var (
	sharedDir string
	shared    = sync.OnceValues(build)
)

func TestMain(m *testing.M) {
	code := 1
	dir, err := os.MkdirTemp("", "ingot-bootdisk-")
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

func build() (b built, err error) {
	b.guest = filepath.Join(sharedDir, "guest")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", b.guest,
		"../../lab/vm/testdata/image")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return b, fmt.Errorf("build guest: %w: %s", err, out)
	}
	cache, err := debian.DefaultCacheDir()
	if err != nil {
		return b, err
	}
	if b.kernel, err = debian.FindKernel(context.Background(), cache); err != nil {
		return b, err
	}
	b.tiny, err = b.makeTiny("tiny.raw")
	return b, err
}

func (b built) makeTiny(name string) (Result, error) {
	return Tiny(context.Background(), TinyConfig{
		Agent: b.guest, Kernel: b.kernel, Out: filepath.Join(sharedDir, name),
		Cmdline: "console=ttyS0 panic=5 quiet no_timer_check ingot.net=dhcp",
	})
}

func needs(t *testing.T) built {
	t.Helper()
	b, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// install puts the image on a larger disk, as an installer would: with the state partition at the end.
func install(t *testing.T, from Result, disk string, files map[string][]byte) {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state.img")
	if err := ext4.StateDisk(state, files); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(from.File)
	if err != nil {
		t.Fatal(err)
	}
	size := from.SizeRaw + 128*mib
	data = append(data[:from.SizeRaw-gpt.TailSize], make([]byte, size-from.SizeRaw+gpt.TailSize)...)
	table, err := gpt.Parse(data[:gpt.HeadSize], sector)
	if err != nil {
		t.Fatal(err)
	}
	at := gpt.Place(size, int64(len(content)))
	if _, err := table.Add(gpt.Partition{
		Name: "state", Type: gpt.LinuxData, ID: guid("test", "state"), Offset: at, Size: int64(len(content)),
	}); err != nil {
		t.Fatal(err)
	}
	tail, err := table.Fit(data[:gpt.HeadSize], size)
	if err != nil {
		t.Fatal(err)
	}
	copy(data[size-gpt.TailSize:], tail)
	copy(data[at:], content)
	if err := os.WriteFile(disk, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// said is the guest's report of itself: the image.json of its state disk. On a machine that was booted to be installed
// it has the parameters and the network, as package pid1 found them.
type said struct {
	Installer *installerParams
	Image     string
}

type installerParams struct{ Site, Token, Interface, MAC, Address string }

// boot starts a machine from the disk and waits for the guest's word.
func boot(t *testing.T, fw vm.Firmware, disk string) said {
	t.Helper()
	if err := vm.Available(fw); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	began := time.Now()
	v, err := vm.Start(ctx, vm.Config{
		Name: "disk-1", Dir: t.TempDir(), StateDisk: disk, Firmware: fw, MAC: "52:54:00:ab:cd:ef", MemoryMB: 384,
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
	console, err := v.WaitSerial(ctx, func(s string) bool { return word(s) != "" })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: power-on to the first word: %v", fw, time.Since(began).Round(10*time.Millisecond))
	var s said
	report := json.NewDecoder(strings.NewReader(word(console)))
	report.DisallowUnknownFields() // a static network, or the secret of a CD
	if err := report.Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func word(console string) string {
	_, rest, _ := strings.Cut(console, "GUEST ")
	text, _, ok := strings.Cut(rest, " end")
	if !ok {
		return ""
	}
	return text
}

func TestTinyImageBootsFromDisk(t *testing.T) {
	t.Parallel()
	b := needs(t)
	for _, fw := range []vm.Firmware{vm.BIOS, vm.UEFI} {
		t.Run(string(fw), func(t *testing.T) {
			t.Parallel()
			disk := filepath.Join(t.TempDir(), "disk.raw")
			install(t, b.tiny, disk, map[string][]byte{"image.json": []byte("left by the installer")})
			if s := boot(t, fw, disk); s.Image != "left by the installer" || s.Installer != nil {
				t.Errorf("booted as %+v", s)
			}
		})
	}
}

// The command line is replaced as a boot server does it.
func TestUnifiedKernelImageBoots(t *testing.T) {
	t.Parallel()
	b := needs(t)
	dir := t.TempDir()
	m, err := imagebuild.Installer(t.Context(), imagebuild.InstallerConfig{
		Agent: b.guest, Kernel: b.kernel, Arch: "amd64", Format: imagebuild.FormatUKI, Cmdline: "panic=5", Dir: dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(dir, imagebuild.UKIFile))
	if err != nil {
		t.Fatal(err)
	}
	span, err := uki.Cmdline(bytes.NewReader(program))
	if room := m.Files[imagebuild.UKIFile].Cmdline; err != nil || room == nil || span.Offset != room.Offset ||
		span.Size != room.Size {
		t.Fatalf("command line at %+v, manifest %+v (%v)", span, room, err)
	}
	line, err := uki.Fill(
		"console=ttyS0 quiet no_timer_check ingot.role=installer ingot.site=http://10.0.2.2:1 ingot.token=tok-1", span.Size)
	if err != nil {
		t.Fatal(err)
	}
	copy(program[span.Offset:], line)
	disk := programDisk(t, program)
	s := boot(t, vm.UEFI, disk)
	want := installerParams{
		Site: "http://10.0.2.2:1", Token: "tok-1", MAC: "52:54:00:ab:cd:ef",
	}
	if s.Installer == nil {
		t.Fatalf("booted as %+v", s)
	}
	got := *s.Installer
	if got.Interface == "" || got.Address != "10.0.2.15/24" {
		t.Errorf("network %+v", got)
	}
	got.Interface, got.Address = "", want.Address
	if got != want {
		t.Errorf("installer %+v, want %+v", got, want)
	}
}

// programDisk makes a disk whose firmware starts the program.
func programDisk(t *testing.T, program []byte) string {
	t.Helper()
	dir := t.TempDir()
	esp, tree, disk := filepath.Join(dir, "esp.img"), filepath.Join(dir, "tree"), filepath.Join(dir, "disk.raw")
	if err := writeFile(filepath.Join(tree, "EFI/BOOT/BOOTX64.EFI"), string(program)); err != nil {
		t.Fatal(err)
	}
	if err := format(t.Context(), esp, 94, "00000001"); err != nil {
		t.Fatal(err)
	}
	if err := copyTree(t.Context(), esp, tree); err != nil {
		t.Fatal(err)
	}
	if _, err := assemble(t.Context(), disk, "test", []part{espPart(esp, 94)}); err != nil {
		t.Fatal(err)
	}
	return disk
}
