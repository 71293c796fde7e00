package health

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestTooFewRightsAreNoFaultOfTheController: doctor names what it has not checked, and who can.
func TestTooFewRightsAreNoFaultOfTheController(t *testing.T) {
	denied := status.Error(codes.PermissionDenied, "it needs scope admin")
	for _, c := range []struct {
		err          error
		what, remedy string
	}{
		{denied, "not checked: it needs scope admin", "scope admin"},
		{errors.Join(denied, denied), "not checked: it needs scope admin; it needs scope admin", "scope admin"},
		{errors.Join(denied, status.Error(codes.Internal, "broken")), "not checked: it needs scope admin; broken",
			"journalctl"},
	} {
		x := &examination{}
		x.notChecked("bmc", c.err)
		if f := x.found[0]; f.What != c.what || !strings.Contains(f.Remedy, c.remedy) {
			t.Errorf("%v: %+v", c.err, f)
		}
	}
}
