package disks

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/disk/image"
)

// coreOSDisk has the partitions and file systems of Fedora CoreOS, smaller (coreos/coreos-assembler,
// src/create_disk.sh), but for the number of partition boot.
const coreOSDisk = `set -e; cd "$1"
truncate -s 80M disk; truncate -s 40M boot; truncate -s 24M root
sgdisk -Z -U 00000000-0000-4000-a000-000000000001 \
  -n 1:0:+1M -c 1:BIOS-BOOT -t 1:21686148-6449-6E6F-744E-656564454649 \
  -n 2:0:+4M -c 2:EFI-SYSTEM -t 2:C12A7328-F81F-11D2-BA4B-00A0C93EC93B \
  -n 7:0:+40M -c 7:boot -n 4:0:+24M -c 4:root -t 4:0FC63DAF-8483-4772-8E79-3D69D8477DE4 disk
mke2fs -q -t ext4 -L boot -d tree boot; mke2fs -q -t ext4 -L root root
dd if=boot of=disk bs=1M seek=6 conv=notrunc status=none
dd if=root of=disk bs=1M seek=46 conv=notrunc status=none`

// flatcarDisk has those of Flatcar, smaller (flatcar/scripts, build_library/disk_layout.json).
const flatcarDisk = `set -e; cd "$1"
truncate -s 80M disk; truncate -s 40M oem; truncate -s 16M root
sgdisk -n 1:0:+4M -c 1:EFI-SYSTEM -t 1:C12A7328-F81F-11D2-BA4B-00A0C93EC93B \
  -n 3:0:+8M -c 3:USR-A -u 3:7130c94a-213a-4e5a-8e26-6cce9662f132 -n 4:0:+8M -c 4:USR-B \
  -n 6:0:+40M -c 6:OEM -n 9:0:+16M -c 9:ROOT disk
mkfs.btrfs -q -M -L OEM -r tree oem; mke2fs -q -t ext4 -L ROOT root
dd if=oem of=disk bs=1M seek=21 conv=notrunc status=none
dd if=root of=disk bs=1M seek=61 conv=notrunc status=none`

// bootFiles are what a boot partition of CoreOS has, by the scripts that read them (coreos/coreos-installer,
// src/install.rs).
var bootFiles = map[string]string{
	"ignition.firstboot":         "",
	"loader.1/entries/os-1.conf": "title OS\noptions ro ignition.platform.id=metal $ignition_firstboot\n",
}

func vendorImage(t *testing.T, script string, files map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, "tree", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(data), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "tree/loader.1")); err == nil {
		if err := os.Symlink("loader.1", filepath.Join(dir, "tree/loader")); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-c", script, "sh", dir)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make image (Debian packages e2fsprogs, gdisk, btrfs-progs): %v: %s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "disk"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readFrom returns a file of a file system on the disk.
func readFrom(t *testing.T, device string, number int, kind, name string) []byte {
	t.Helper()
	d, err := block.Open(device, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p, found := partitionsOf(t, d)[number]
	if !found {
		t.Fatalf("no partition %d", number)
	}
	var data []byte
	err = d.Part(t.Context(), p.Offset, p.Size, func(path string) error {
		return mounted(kind, path, true, func(dir string) error {
			return inTree(dir, ".", func(tree *os.Root) (err error) {
				data, err = tree.ReadFile(name)
				return err
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// apply has Debian's Ignition set up a system by the configuration, as the vendors' images have it: the file is the
// user's configuration of platform metal (coreos/fedora-coreos-config, coreos-ignition-setup-user.sh).
func apply(t *testing.T, config []byte) (root string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // keys are written as the user whose they are
		t.Fatal(err)
	}
	root = filepath.Join(dir, "sysroot")
	for name, data := range map[string]string{
		"config/user.ign":    string(config),
		"sysroot/etc/passwd": "root:x:0:0:root:/root:/bin/sh\ncore:x:500:500:Core:/home/core:/bin/sh\n",
		"sysroot/etc/group":  "root:x:0:\ncore:x:500:\n",
		"sysroot/etc/shadow": "root:*:19000::::::\ncore:*:19000::::::\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(data), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "home/core"), 0o755), os.Chown(filepath.Join(root, "home/core"),
		500, 500)); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []string{"fetch", "files"} {
		cmd := exec.Command(ignitionProgram, "--log-to-stdout", "--platform=metal", "--stage="+stage, "--root="+root,
			"--config-cache="+filepath.Join(dir, "cache"), "--state-file="+filepath.Join(dir, "state"),
			"--neednet="+filepath.Join(dir, "neednet"))
		cmd.Env = append(os.Environ(), "IGNITION_SYSTEM_CONFIG_DIR="+filepath.Join(dir, "config"))
		out, err := cmd.CombinedOutput()
		// Labels come last, and the tree has no policy of SELinux.
		if err != nil && !strings.Contains(string(out), "Ignition failed: failed to handle relabeling") {
			t.Fatalf("Ignition (Debian package ignition), stage %s: %v:\n%.2000s", stage, err, out)
		}
	}
	return root
}

// ignitionProgram is where Debian's dracut module has it.
const ignitionProgram = "/usr/lib/dracut/modules.d/30ignition/ignition"

func holds(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s holds %.200q (%v), not %q", name, got, err, want)
		}
	}
}

const aKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBsGJVxh5G2c2Ks0W6bZ6tkZkHcRYW8bm7Yb8J1c0WfL me@box"

// ignitionData overrides a file of the installer, and adds one.
const ignitionData = `{"ignition": {"version": "3.2.0"}, "storage": {"files": [
  {"path": "/etc/hostname", "overwrite": true, "mode": 420, "contents": {"source": "data:,of-the-user"}},
  {"path": "/etc/motd", "mode": 420, "contents": {"source": "data:,top-secret"}}]}}`

// TestIgnitionImagesAreGivenAConfiguration: the file is where the vendor's image looks for it, the evidence has its
// digest, and Ignition itself makes the system of it.
func TestIgnitionImagesAreGivenAConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		raw            []byte
		kind, path, at string
		number         int
		network        string
	}{
		"CoreOS": {vendorImage(t, coreOSDisk, bootFiles), "ext4", "ignition/config.ign", "boot:/ignition/config.ign", 7,
			"etc/NetworkManager/system-connections/ingot-boot.nmconnection"},
		"Flatcar": {vendorImage(t, flatcarDisk, map[string]string{"oem-release": "ID=metal\n"}), "btrfs", "config.ign",
			"OEM:/config.ign", 6, "etc/systemd/network/00-ingot-boot.network"},
	} {
		t.Run(name, func(t *testing.T) {
			seed := firstboot.Seed{Hostname: "r42-07", AuthorizedKeys: []string{aKey}, UserData: ignitionData}
			_, device, e, _, err := installStock(t, c.raw, seed)
			if err != nil {
				t.Fatal(err)
			}
			config := readFrom(t, device, c.number, c.kind, c.path)
			if len(e.Changes) != 1 || e.Changes[0].Path != c.at || e.Changes[0].Mode != "0600" ||
				e.Changes[0].SHA256 != fmt.Sprintf(
					"%x",
					sha256.Sum256(config),
				) || !strings.Contains(e.System, "by Ignition on partition") {
				t.Errorf("added to %q: %v", e.System, e.Changes)
			}
			cmd := exec.Command("ignition-validate", "-")
			cmd.Stdin = strings.NewReader(string(config))
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("ignition-validate: %v: %s", err, out)
			}
			root := apply(t, config)
			holds(t, root, map[string]string{
				"etc/hostname": "of-the-user", "etc/motd": "top-secret", c.network: "52:54:00:00:00:07",
				"home/core/.ssh/authorized_keys.d/ignition":           aKey,
				"opt/ingot/bin/ingot-agent":                           strings.Repeat("agent ", 1<<18),
				"opt/ingot/bin/start-agent":                           "exec /opt/ingot/bin/ingot-agent",
				"etc/systemd/system/var-lib-ingot.mount":              "What=/dev/disk/by-partlabel/INGOT-STATE",
				"etc/systemd/system/ingot-agent.service":              "WantedBy=multi-user.target",
				"etc/systemd/system/ingot-agent.service.d/image.conf": "ExecStart=/opt/ingot/bin/start-agent",
				"etc/systemd/system/ingot-rollback.service":           "/opt/ingot/bin/ingot-agent rollback",
				"etc/systemd/system-preset/20-ignition.preset":        "enable ingot-agent.service",
				"etc/ingot/agent.yaml":                                "/var/lib/ingot/agent.yaml",
			})
			if info, err := os.Stat(filepath.Join(root, "opt/ingot/bin/ingot-agent")); err != nil ||
				info.Mode().Perm() != 0o755 {
				t.Errorf("the agent: %v, %v", info, err)
			}
		})
	}
}

// TestAnIgnitionImageWithoutAnAgent phones home from a unit of its own.
func TestAnIgnitionImageWithoutAnAgent(t *testing.T) {
	var form map[string][]string
	site := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		form = r.PostForm
	}))
	defer site.Close()
	files := map[string]string{"ignition.firstboot": "",
		"loader.1/entries/os-1.conf": "options ro ignition.platform.id=qemu $ignition_firstboot\n"}
	_, device, e, _, err := installAs(t, vendorImage(t, coreOSDisk, files), func(w *WriteImage) {
		w.Agentless = true
		w.Identity = func(context.Context) (NextSystem, error) {
			return NextSystem{Seed: firstboot.Seed{Hostname: "r42-07"}, InstanceID: "ingot-op-1",
				PhoneHome: site.URL + "/phone-home/s3cret"}, nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Changes) != 2 || e.Changes[1].Path != "boot:/loader/entries/os-1.conf" {
		t.Errorf("changes %v", e.Changes)
	}
	if got := readFrom(t, device, 7, "ext4", "loader/entries/os-1.conf"); !strings.Contains(string(got),
		" ignition.platform.id=metal $ignition_firstboot") {
		t.Errorf("the boot loader's entry: %s", got)
	}
	root := apply(t, readFrom(t, device, 7, "ext4", "ignition/config.ign"))
	holds(t, root, map[string]string{
		"etc/hostname": "r42-07\n",
		"etc/systemd/system/ingot-phone-home.service":  "ExecStart=/bin/sh /opt/ingot/bin/phone-home",
		"etc/systemd/system-preset/20-ignition.preset": "enable ingot-phone-home.service",
	})
	if _, err := os.Stat(filepath.Join(root, "opt/ingot/bin/ingot-agent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the agent is there: %v", err)
	}
	script := filepath.Join(root, "opt/ingot/bin/phone-home")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "sh", script).CombinedOutput(); err != nil {
		t.Fatalf("phone home: %v: %s", err, out)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if id := form["instance_id"]; len(id) != 1 || id[0] != "ingot-op-1" || len(form["hostname"]) != 1 ||
		form["hostname"][0] != name {
		t.Errorf("phoned home with %v", form)
	}
	if _, err := os.Stat(script); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the script with the secret is still there: %v", err)
	}
}

// TestSeedsThatTheImageCannotBeGiven: the probe refuses them before anything is written, and names the remedy. A write
// refuses them too, in case there was no probe.
func TestSeedsThatTheImageCannotBeGiven(t *testing.T) {
	coreOS, flatcar := vendorImage(t, coreOSDisk, bootFiles), vendorImage(t, flatcarDisk, map[string]string{"x": ""})
	stock := stockImage(t, "ext4", 48, stockFiles)
	bonds := "version: 2\nbonds: {bond0: {interfaces: [a, b]}}\n"
	for name, c := range map[string]struct {
		raw  []byte
		seed firstboot.Seed
		say  firstboot.For
		want string
	}{
		"cloud-init's for CoreOS": {coreOS, firstboot.Seed{UserData: userData}, unfitFor("it is for cloud-init"),
			"butane"},
		"cloud-init's for Flatcar": {flatcar, firstboot.Seed{UserData: userData}, unfitFor("it is for cloud-init"),
			"butane"},
		"bonds for CoreOS": {coreOS, firstboot.Seed{NetworkConfig: bonds}, unfitFor("line 2"), "line 2"},
		"Ignition's for Debian": {stock, firstboot.Seed{UserData: ignitionData}, firstboot.For{Ignition: true},
			"#cloud-config"},
		"Ignition's for Flatcar": {flatcar, firstboot.Seed{UserData: ignitionData}, firstboot.For{Ignition: true}, ""},
	} {
		l, _, e, _, written := installStock(t, c.raw, c.seed)
		w := order(t, c.raw, new(image.Commit))
		w.Disk.ID, w.Seed = "LOOP-1", c.say
		probed := l.ProbeImage(t.Context(), w, 512)
		if c.want == "" {
			if probed != nil || written != nil {
				t.Errorf("%s: the probe says %v, the write %v", name, probed, written)
			}
			continue
		}
		for what, err := range map[string]error{"the probe": probed, "the write": written} {
			var why *image.Error
			if !errors.As(err, &why) || why.Reason != baremetalv1.Reason_INVALID_FIELD || why.Retryable ||
				!strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		if e.Left != image.LeftUnbootable {
			t.Errorf("%s: the disk %s", name, e.Left)
		}
	}
}

func unfitFor(why string) firstboot.For { return firstboot.For{Unfit: why} }

// TestALargeConfigurationIsRefused where its file system has no room, before it is written.
func TestALargeConfigurationIsRefused(t *testing.T) {
	raw := vendorImage(t, strings.ReplaceAll(coreOSDisk, "-L boot -d", "-m 0 -L boot -d"),
		map[string]string{"ignition.firstboot": "", "filler": strings.Repeat("x", 30<<20)})
	_, _, e, _, err := installStock(t, raw, firstboot.Seed{UserData: ignitionData})
	if !errors.Is(err, firstboot.ErrUnsupported) || !strings.Contains(err.Error(), "MiB are free") ||
		e.Left != image.LeftUnbootable {
		t.Errorf("%v; the disk %s", err, e.Left)
	}
}
