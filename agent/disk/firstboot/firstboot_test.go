package firstboot_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
)

// TestUnitsAreThoseOfThePackage: what the installer adds is what the Debian packages install, so that one of these can
// take its place.
func TestUnitsAreThoseOfThePackage(t *testing.T) {
	t.Parallel()
	for ours, theirs := range map[string]string{
		"ingot-agent.service": "deploy/systemd", "ingot-firewall.service": "deploy/systemd",
		"ingot-rollback.service": "deploy/systemd", "start-agent": "imagebuild/bootdisk/debian",
	} {
		got, err := os.ReadFile("files/" + ours)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("../../../" + theirs + "/" + ours)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("files/%s differs from %s/%[1]s", ours, theirs)
		}
	}
}

// TestDataDisksAreMountedBySystemd, and by no other init: a system without it is refused.
func TestDataDisksAreMountedBySystemd(t *testing.T) {
	t.Parallel()
	c := firstboot.Config{Mounts: []firstboot.Mount{{Path: "/srv/data-1", Disk: "D", PartID: "p-9"}}}
	files, err := firstboot.System{Systemd: true, Agent: true}.Files(c)
	if err != nil || len(files) != 2 || files[0].Path != `etc/systemd/system/srv-data\x2d1.mount` ||
		files[1].Link != "/"+files[0].Path || !strings.Contains(string(files[0].Data), "What=/dev/disk/by-partuuid/p-9\n") ||
		!strings.Contains(string(files[0].Data), "Where=/srv/data-1\n") {
		t.Errorf("%+v, %v", files, err)
	}
	if _, err := (firstboot.System{Agent: true}).Files(c); !errors.Is(err, firstboot.ErrUnsupported) {
		t.Errorf("without systemd: %v", err)
	}
}

// TestAMirrorNeedsMdadm: without it the system would write to one of the disks alone.
func TestAMirrorNeedsMdadm(t *testing.T) {
	t.Parallel()
	if _, err := (firstboot.System{Systemd: true, Agent: true}).Files(firstboot.Config{Mirror: true}); !errors.Is(err,
		firstboot.ErrUnsupported) {
		t.Errorf("without mdadm: %v", err)
	}
	system := firstboot.System{Systemd: true, Agent: true, Mdadm: true}
	if _, err := system.Files(firstboot.Config{Mirror: true}); err != nil {
		t.Error(err)
	}
}
