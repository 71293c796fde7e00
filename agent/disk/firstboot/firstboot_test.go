package firstboot_test

import (
	"os"
	"testing"
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
