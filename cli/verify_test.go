package cli

import (
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func TestBrokenHistoryHasItsExitCode(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	if got := f.run(t, "audit", "verify"); got.code != 0 ||
		got.out != "2 histories with 4 entries verified, 0 at fault\n" {
		t.Errorf("%+v", got)
	}
	f.broken = "machine-1"
	got := f.run(t, "audit", "verify")
	if got.code != exitFailed || !inOrder(got.out, "MACHINE", "machine-1", "no", "entry 2 has been changed",
		"1 at fault") || strings.Contains(got.out, "(fleet)") {
		t.Errorf("%+v", got)
	}
	if got := f.run(t, "audit", "verify", "--heads"); !inOrder(got.out, "(fleet)", "machine-1") {
		t.Errorf("%+v", got)
	}
	if got := f.run(t, "timeline", "machine-1", "--at", "yesterday"); got.code != exitUnexpected ||
		!strings.Contains(got.err, "RFC 3339") {
		t.Errorf("%+v", got)
	}
}
