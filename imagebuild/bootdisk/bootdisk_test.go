package bootdisk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/gpt"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestTinyImageIsReproducible(t *testing.T) {
	t.Parallel()
	b := needs(t)
	packed, err := b.makeTiny("again.raw.zst")
	if err != nil {
		t.Fatal(err)
	}
	if packed.SHA256Raw != b.tiny.SHA256Raw || packed.SizeRaw != b.tiny.SizeRaw {
		t.Errorf("the second image is %+v, the first %+v", packed, b.tiny)
	}
	raw, err := os.Open(b.tiny.File)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	again, err := write(t.Context(), filepath.Join(t.TempDir(), "x.raw.zst"), raw)
	if err != nil || again.SHA256File != packed.SHA256File {
		t.Errorf("compressed: %+v and %+v (%v)", packed, again, err)
	}
	info, err := Inspect(t.Context(), packed.File)
	if err != nil || info.Result != packed {
		t.Errorf("inspected %+v, built %+v (%v)", info, packed, err)
	}
}

func TestTinyImageHoldsWhatBoots(t *testing.T) {
	t.Parallel()
	b := needs(t)
	info, err := Inspect(t.Context(), b.tiny.File)
	if err != nil || info.Table != "gpt" || len(info.Partitions) != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
	data, err := os.ReadFile(b.tiny.File)
	if err != nil {
		t.Fatal(err)
	}
	table, err := gpt.Parse(data[:gpt.HeadSize], sector)
	if err != nil {
		t.Fatal(err)
	}
	p := table.Partitions()[0]
	if p.Type != typeESP || p.Attributes != legacyBootable || p.Offset != mib ||
		bytes.Count(data[:bootCodeLen], []byte{0}) == bootCodeLen {
		t.Errorf("partition %+v, boot code %x", p, data[:8])
	}
	for name, want := range map[string]string{
		"syslinux.cfg": "APPEND console=ttyS0", "loader/entries/ingot.conf": "options console=ttyS0",
		"loader/loader.conf": "timeout 0",
	} {
		out, err := exec.Command("mtype", "-i", b.tiny.File+"@@1M", "::/"+name).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %q (%v)", name, out, err)
		}
	}
	dates, err := exec.Command("mdir", "-/", "-i", b.tiny.File+"@@1M", "::").Output()
	if err != nil || strings.Count(string(dates), "1980-01-01") < 12 ||
		regexp.MustCompile(` 20\d\d-`).Match(dates) {
		t.Errorf("times (%v):\n%s", err, dates)
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	raw := make([]byte, 2*mib)
	mbr := raw[446:]
	mbr[4] = 0x83
	binary.LittleEndian.PutUint32(mbr[8:], 2048)
	binary.LittleEndian.PutUint32(mbr[12:], 2048)
	raw[510], raw[511] = 0x55, 0xaa
	path := filepath.Join(dir, "disk.raw")
	write := func(data []byte) Info {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := Inspect(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	info := write(raw)
	want := PartitionInfo{Number: 1, Type: "83", Offset: mib, Size: mib}
	if info.Table != "mbr" || len(info.Partitions) != 1 || info.Partitions[0] != want ||
		info.SHA256File != info.SHA256Raw {
		t.Errorf("mbr: %+v", info)
	}
	qcow := filepath.Join(dir, "named.raw")
	if out, err := exec.Command("qemu-img", "convert", "-c", "-O", "qcow2", path, qcow).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	q, err := Inspect(t.Context(), qcow)
	if err != nil || q.Format != Qcow2 || q.SHA256Raw != info.SHA256Raw || q.SizeRaw != info.SizeRaw ||
		q.SHA256File == info.SHA256File {
		t.Errorf("qcow2: %+v, %v", q, err)
	}
	if info = write([]byte("short")); info.Table != "none" || info.SizeRaw != 5 || info.Format != Raw {
		t.Errorf("short: %+v", info)
	}
	if info = write(nil); info.SizeRaw != 0 || info.Format != Raw {
		t.Errorf("empty: %+v", info)
	}
	if info = write(make([]byte, 2*mib)); info.Table != "none" {
		t.Errorf("zeros: %+v", info)
	}
}

func TestInspectRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	backing := filepath.Join(dir, "backed.qcow2")
	base := filepath.Join(dir, "base.raw")
	if err := os.WriteFile(base, make([]byte, mib), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("qemu-img", "create", "-f", "qcow2", "-b", base, "-F", "raw",
		backing).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	damaged, _, err := table(nil, "damaged", nil, gpt.HeadSize+gpt.TailSize)
	if err != nil {
		t.Fatal(err)
	}
	damaged[sector+40]++
	files := map[string][]byte{
		"cut zstd":     {0x28, 0xb5, 0x2f, 0xfd, 0x04},
		"cut qcow2":    []byte("QFI\xfb\x00"),
		"damaged gpt":  damaged,
		"no such file": nil,
	}
	for name, data := range files {
		path := filepath.Join(dir, name)
		if data != nil {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if info, err := Inspect(t.Context(), path); err == nil {
			t.Errorf("%s: %+v", name, info)
		}
	}
	if info, err := Inspect(t.Context(), backing); err == nil {
		t.Errorf("an image that needs another file: %+v", info)
	}
}

func TestWriteEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := write(ctx, filepath.Join(dir, "x.raw.zst"), bytes.NewReader(make([]byte, mib))); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestConfigureTree(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	for name, text := range map[string]string{
		"etc/hostname": "builder", "etc/machine-id": "0123", "etc/ssh/ssh_host_rsa_key": "secret",
		"etc/resolv.conf": "nameserver 192.0.2.1",
	} {
		if err := writeFile(filepath.Join(tree, name), text); err != nil {
			t.Fatal(err)
		}
	}
	if err := configureTree(tree, "esp-id", "root-id"); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"etc/hostname", "etc/ssh/ssh_host_rsa_key"} {
		if _, err := os.Lstat(filepath.Join(tree, gone)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there (%v)", gone, err)
		}
	}
	if id, err := os.ReadFile(filepath.Join(tree, "etc/machine-id")); err != nil || len(id) != 0 {
		t.Errorf("machine-id %q, %v", id, err)
	}
	fstab, err := os.ReadFile(filepath.Join(tree, "etc/fstab"))
	if err != nil || !strings.Contains(string(fstab), "PARTUUID=root-id / ext4") ||
		!strings.Contains(string(fstab), "LABEL=INGOT-STATE /var/lib/ingot ext4") {
		t.Errorf("fstab %s (%v)", fstab, err)
	}
	if to, err := os.Readlink(filepath.Join(tree, "etc/resolv.conf")); err != nil ||
		!strings.HasPrefix(to, "../run/systemd") {
		t.Errorf("resolv.conf leads to %q (%v)", to, err)
	}
	for _, script := range []string{"usr/lib/ingot/start-agent", "etc/kernel/postinst.d/zz-ingot"} {
		info, err := os.Stat(filepath.Join(tree, script))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %+v, %v", script, info, err)
		}
		if out, err := exec.Command("sh", "-n", filepath.Join(tree, script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
}

// A program that is killed in the middle leaves mounts in no namespace but its own, and no process of its group.
func TestMountsOfAProgramEndWithIt(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir := t.TempDir()
	tree, ready := filepath.Join(dir, "tree"), filepath.Join(dir, "ready")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	task.Background("program", func() {
		done <- runMounting(ctx, "sh", "-c",
			`mount -t tmpfs none "$0" && touch "$0/inside" && touch "$1" && sleep 1000 & wait`, tree, ready)
	})
	testkit.Eventually(t, time.Minute, func() bool { _, err := os.Stat(ready); return err == nil },
		"the program has not mounted")
	if left, err := os.ReadDir(tree); err != nil || len(left) != 0 {
		t.Errorf("its mount is seen outside: %v, %v", left, err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a program that was ended says %v", err)
	}
}
