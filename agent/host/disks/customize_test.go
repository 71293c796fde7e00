package disks

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go.yaml.in/yaml/v3"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/gpt"
)

// stockFiles is the least that makes a tree a system with systemd and cloud-init.
var stockFiles = map[string]string{
	"usr/lib/os-release":      "NAME=x\nID=stock\n",
	"etc/fstab":               "UUID=1 / ext4 defaults 0 1\n",
	"usr/bin/cloud-init":      "#!/bin/sh\n",
	"usr/bin/growpart":        "x",
	"usr/lib/systemd/systemd": "x",
	"etc/cloud/cloud.cfg":     "# x\n",
	"etc/systemd/system/x":    "",
}

// stockImage is a disk image with a boot partition that is no system, and a root of the kind in partition 1, which lies
// last. Its size is in MiB.
func stockImage(t *testing.T, kind string, size int, files map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	tree, root, boot, disk := filepath.Join(dir, "tree"), filepath.Join(dir, "root"), filepath.Join(dir, "boot"),
		filepath.Join(dir, "disk")
	for name, data := range files {
		path := filepath.Join(tree, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(data), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	const bootMiB = 4
	script := `set -e
truncate -s $3M "$2/boot"; mke2fs -q -t ext4 "$2/boot"
truncate -s $4M "$2/root"
case $1 in
ext4) mke2fs -q -t ext4 -d "$2/tree" "$2/root" ;;
LUKS) printf 'LUKS\272\276' | dd of="$2/root" conv=notrunc status=none ;;
esac
truncate -s $((2 + $3 + $4))M "$2/disk"
sgdisk -n 2:1M:+$3M -t 2:8300 -n 1:$((1 + $3))M:+$4M -t 1:8300 "$2/disk"
dd if="$2/boot" of="$2/disk" bs=1M seek=1 conv=notrunc status=none
dd if="$2/root" of="$2/disk" bs=1M seek=$((1 + $3)) conv=notrunc status=none`
	cmd := exec.Command("sh", "-c", script, "sh", kind, dir, fmt.Sprint(bootMiB), fmt.Sprint(size))
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make image (Debian packages e2fsprogs, gdisk): %v: %s; %s %s", err, out, root, boot)
	}
	b, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const userData = "#cloud-config\nwrite_files: [{path: /etc/x, content: top-secret}]\n"

// installStock writes an image with a seed onto a real block device.
func installStock(t *testing.T, raw []byte, seed firstboot.Seed) (l *Storage, device string, e image.Evidence,
	c image.Commit, err error) {
	t.Helper()
	return installAs(t, raw, func(w *WriteImage) {
		w.Identity = func(context.Context) (NextSystem, error) {
			return NextSystem{
				Files:      map[string][]byte{"bootstrap-token": []byte("t")},
				Seed:       seed,
				InstanceID: "ingot-op-1",
			}, nil
		}
	})
}

// installAs is installStock with an order that the test has edited.
func installAs(t *testing.T, raw []byte, edit func(*WriteImage)) (l *Storage, device string, e image.Evidence,
	c image.Commit, err error) {
	t.Helper()
	m, err := disktest.NewMachine(t.TempDir(), 160<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Detach(); err != nil {
			t.Error(err)
		}
	})
	program := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(program, []byte(strings.Repeat("agent ", 1<<18)), 0o755); err != nil {
		t.Fatal(err)
	}
	l = NewStorage(system.NewSystem(m.Root, true, slog.Default()), Patience{}, "template", Open, image.NewClient())
	l.Program, l.BootMAC = program, "52:54:00:00:00:07"
	w := order(t, raw, &c)
	edit(&w)
	_, e, err = l.WriteImage(t.Context(), effect.Cause{}, w)
	return l, m.Device, e, c, err
}

// inPartition mounts a partition of the disk by its table.
func inPartition(t *testing.T, device string, number int, fn func(tree *os.Root) error) {
	t.Helper()
	d, err := block.Open(device, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p := partitionsOf(t, d)[number]
	err = d.Part(t.Context(), p.Offset, p.Size, func(path string) error {
		return mounted("ext4", path, true, func(dir string) error { return inTree(dir, ".", fn) })
	})
	if err != nil {
		t.Fatal(err)
	}
}

func partitionsOf(t *testing.T, d *block.Disk) map[int]gpt.Partition {
	t.Helper()
	head := block.Buffer(gpt.HeadSize)
	if _, err := d.ReadAt(head, 0); err != nil {
		t.Fatal(err)
	}
	table, err := gpt.Parse(head, d.Sector())
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]gpt.Partition{}
	for _, p := range table.Partitions() {
		out[p.Number] = p
	}
	return out
}

// TestAStockImageIsGivenWhatItNeeds: the digest is that of the vendor's bytes, and every listed file is on the disk
// with its digest. Nothing else of the system has changed.
func TestAStockImageIsGivenWhatItNeeds(t *testing.T) {
	raw := stockImage(t, "ext4", 48, stockFiles)
	seed := firstboot.Seed{Hostname: "r42-07", AuthorizedKeys: []string{"ssh-ed25519 AAAA me"}, UserData: userData}
	l, device, e, commit, err := installStock(t, raw, seed)
	if err != nil {
		t.Fatal(err)
	}
	if e.Digest != sha256.Sum256(raw) {
		t.Errorf("digest %x is not the image's", e.Digest)
	}
	if e.System != "stock on partition 1 (ext4)" || len(e.Changes) == 0 {
		t.Errorf("added to %q: %v", e.System, e.Changes)
	}
	listed := map[string]bool{}
	for _, c := range e.Changes {
		listed[c.Path] = true
	}
	inPartition(t, device, 1, func(tree *os.Root) error {
		meta, err := tree.ReadFile("var/lib/cloud/seed/nocloud/meta-data")
		var m struct {
			ID   string   `json:"instance-id"`
			Host string   `json:"local-hostname"`
			Keys []string `json:"public-keys"`
		}
		if err := errors.Join(err, json.Unmarshal(meta, &m)); err != nil {
			return err
		}
		if m.ID != "ingot-op-1" || m.Host != "r42-07" || len(m.Keys) != 1 {
			t.Errorf("meta-data %s", meta)
		}
		for name, want := range map[string]string{
			"var/lib/cloud/seed/nocloud/user-data":      userData,
			"var/lib/cloud/seed/nocloud/network-config": "52:54:00:00:00:07",
			"etc/systemd/system/var-lib-ingot.mount":    "/dev/disk/by-partuuid/" + e.StateID,
			"usr/bin/ingot-agent":                       "agent agent",
			"etc/fstab":                                 stockFiles["etc/fstab"],
		} {
			got, err := tree.ReadFile(name)
			if err != nil || !strings.Contains(string(got), want) {
				t.Errorf("%s holds %.80q (%v), want %q", name, got, err, want)
			}
			if name != "etc/fstab" && !listed["/"+name] {
				t.Errorf("%s is not in the list", name)
			}
		}
		if info, err := tree.Stat("var/lib/cloud/seed/nocloud"); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the seed's directory: %v, %v", info, err)
		}
		return firstboot.Verify(tree, e.Changes)
	})
	if err := l.CheckImage(
		t.Context(),
		WriteImage{Disk: disk.Ref{ID: "LOOP-1"}, Digest: fmt.Sprintf("%x", e.Digest), RawSize: int64(len(raw))},
		commit,
	); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if out := fmt.Sprintf("%v %+v %#v", seed, seed, seed); strings.Contains(out, "top-secret") {
		t.Errorf("a seed prints as %s", out)
	}
	out, err := exec.Command("/usr/sbin/sgdisk", "-v", device).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "No problems found") {
		t.Errorf("sgdisk -v: %s (%v)", out, err)
	}
}

// TestARootIsGrownBeforeItsFirstBoot: where nothing in the image grows it, or the added files have no room in it.
func TestARootIsGrownBeforeItsFirstBoot(t *testing.T) {
	if !system.NewSystem("/", false, slog.Default()).HasCapability(unix.CAP_SYS_RESOURCE) {
		t.Skip("without CAP_SYS_RESOURCE the kernel grows no ext4")
	}
	for name, c := range map[string]struct {
		growpart bool
		size     int
		grows    bool
	}{
		"no growpart": {size: 48, grows: true}, "growpart": {growpart: true, size: 48},
		"growpart, and no room": {growpart: true, size: 12, grows: true},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for k, v := range stockFiles {
				files[k] = v
			}
			if !c.growpart {
				delete(files, "usr/bin/growpart")
			}
			_, device, _, _, err := installStock(t, stockImage(t, "ext4", c.size, files), firstboot.Seed{UserData: userData})
			if err != nil {
				t.Fatal(err)
			}
			d, err := block.Open(device, false)
			if err != nil {
				t.Fatal(err)
			}
			p := partitionsOf(t, d)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if grown := p[1].Size > int64(c.size)<<20; grown != c.grows {
				t.Errorf("the root has %d MiB", p[1].Size>>20)
			}
			if c.grows && p[1].Offset+p[1].Size != p[3].Offset {
				t.Errorf("the root ends at %d, the state partition begins at %d", p[1].Offset+p[1].Size, p[3].Offset)
			}
			inPartition(t, device, 1, func(tree *os.Root) error {
				_, err := tree.Stat("usr/bin/ingot-agent")
				return err
			})
			out, err := exec.Command("sh", "-c",
				fmt.Sprintf("dd if=%s bs=1M iflag=direct skip=%d count=%d of=%s status=none && "+
					"/usr/sbin/e2fsck -fn %[4]s", device, p[1].Offset>>20, p[1].Size>>20, filepath.Join(t.TempDir(), "root"))).
				CombinedOutput()
			if err != nil {
				t.Errorf("e2fsck: %v: %s", err, out)
			}
		})
	}
}

// TestASeedWithoutARoot: a root that cannot be mounted leaves the image alone, and cloud-init gets a partition.
func TestASeedWithoutARoot(t *testing.T) {
	_, device, e, _, err := installStock(t, stockImage(t, "LUKS", 24, nil), firstboot.Seed{UserData: userData})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "partition 1 holds LUKS") {
		t.Errorf("warnings %q", e.Warnings)
	}
	d, err := block.Open(device, false)
	if err != nil {
		t.Fatal(err)
	}
	p := partitionsOf(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	seed := p[4]
	if seed.Name != firstboot.VolumeName || seed.Offset+seed.Size != p[3].Offset {
		t.Fatalf("partitions %v", p)
	}
	file := filepath.Join(t.TempDir(), "cidata")
	script := "dd if=$1 bs=1M iflag=direct skip=$2 count=$3 of=$4 status=none && /usr/sbin/blkid -p -o export $4 && " +
		"mcopy -n -i $4 ::user-data - && mdir -i $4 ::"
	out, err := exec.Command("sh", "-c", script, "sh", device, fmt.Sprint(seed.Offset>>20), fmt.Sprint(seed.Size>>20),
		file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "LABEL=CIDATA") || !strings.Contains(string(out), userData) ||
		!strings.Contains(string(out), "network-config") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAnImageThatCannotTakeASeed ends unbootable, with its reason.
func TestAnImageThatCannotTakeASeed(t *testing.T) {
	files := map[string]string{"usr/lib/os-release": "ID=x\n", "etc/x": "", "usr/lib/systemd/systemd": ""}
	_, device, e, _, err := installStock(t, stockImage(t, "ext4", 48, files), firstboot.Seed{UserData: userData})
	var why *image.Error
	if !errors.As(err, &why) || why.Reason.String() != "IMAGE_UNSUPPORTED" || why.Retryable ||
		e.Left != image.LeftUnbootable {
		t.Errorf("%v; the disk %s", err, e.Left)
	}
	head := make([]byte, 4096)
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Read(head); err != nil || strings.Trim(string(head), "\x00") != "" {
		t.Errorf("the disk's beginning is no zeros (%v)", err)
	}
}

// TestAnAgentlessInstallation adds the seed, the order to phone home, and nothing of the agent.
func TestAnAgentlessInstallation(t *testing.T) {
	const url = "http://10.20.0.1:8080/phone-home/s3cret"
	raw := stockImage(t, "ext4", 48, stockFiles)
	_, device, e, _, err := installAs(t, raw, func(w *WriteImage) {
		w.Agentless = true
		w.Identity = func(context.Context) (NextSystem, error) {
			return NextSystem{Seed: firstboot.Seed{Hostname: "r42-07"}, InstanceID: "ingot-op-1", PhoneHome: url}, nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := block.Open(device, true)
	if err != nil {
		t.Fatal(err)
	}
	if p := partitionsOf(t, d); len(p) != 2 || e.StateID != "" { // those of the image
		t.Errorf("partitions %v, state partition %q", p, e.StateID)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range e.Changes {
		if strings.Contains(c.Path, "ingot-agent") || strings.Contains(c.Path, "systemd") {
			t.Errorf("added %s", c.Path)
		}
	}
	inPartition(t, device, 1, func(tree *os.Root) error {
		vendor, err := tree.ReadFile("var/lib/cloud/seed/nocloud/vendor-data")
		if err != nil {
			return err
		}
		var config struct {
			PhoneHome struct {
				URL   string   `yaml:"url"`
				Post  []string `yaml:"post"`
				Tries int      `yaml:"tries"`
			} `yaml:"phone_home"`
		}
		if err := yaml.Unmarshal(vendor, &config); err != nil {
			return err
		}
		p := config.PhoneHome
		if !strings.HasPrefix(string(vendor), "#cloud-config\n") || p.URL != url || p.Tries < 10 ||
			!slices.Contains(p.Post, "instance_id") {
			t.Errorf("vendor-data %s", vendor)
		}
		return firstboot.Verify(tree, e.Changes)
	})
}

// TestAnAgentlessInstallationNeedsCloudInit, and no agent in the image.
func TestAnAgentlessInstallationNeedsCloudInit(t *testing.T) {
	for what, files := range map[string]map[string]string{
		"no cloud-init": {"usr/lib/os-release": "ID=stock\n", "etc/fstab": "", "usr/lib/systemd/systemd": ""},
		"baked": {"usr/lib/os-release": "ID=stock\n", "etc/fstab": "LABEL=INGOT-STATE /var/lib/ingot ext4\n",
			"usr/bin/cloud-init": ""},
	} {
		_, _, _, _, err := installAs(t, stockImage(t, "ext4", 48, files), func(w *WriteImage) {
			w.Agentless = true
			w.Identity = func(context.Context) (NextSystem, error) { return NextSystem{PhoneHome: "http://x/y"}, nil }
		})
		if !errors.Is(err, firstboot.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
