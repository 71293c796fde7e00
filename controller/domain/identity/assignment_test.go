package identity_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/identity"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/failure"
)

func TestAssignmentsThatSystemsAreCertifiedFor(t *testing.T) {
	t.Parallel()
	good := identity.Assignment{Vouched: true, Mode: operation.BootInstaller, OperationID: "op-1", TokenFits: true}
	for name, c := range map[string]struct {
		change func(*identity.Assignment)
		may    bool
	}{
		"an installer":              {func(*identity.Assignment) {}, true},
		"of a busy machine":         {func(a *identity.Assignment) { a.Busy = true }, true},
		"another site's agent":      {func(a *identity.Assignment) { a.Vouched = false }, false},
		"no assignment":             {func(a *identity.Assignment) { a.Mode = "" }, false},
		"the disk":                  {func(a *identity.Assignment) { a.Mode = operation.BootDisk }, false},
		"another token":             {func(a *identity.Assignment) { a.TokenFits = false }, false},
		"nobody's work":             {func(a *identity.Assignment) { a.OperationID = "" }, false},
		"work that has ended":       {func(a *identity.Assignment) { a.Ended = true }, false},
		"a rescue system":           {func(a *identity.Assignment) { a.Mode = operation.BootRescue }, true},
		"a rescue system left":      {func(a *identity.Assignment) { a.Mode, a.Ended = operation.BootRescue, true }, true},
		"left, on a busy machine":   {func(a *identity.Assignment) { a.Mode, a.Ended, a.Busy = operation.BootRescue, true, true }, false},
		"an installer that is left": {func(a *identity.Assignment) { a.Ended, a.Busy = true, true }, false},
	} {
		a := good
		c.change(&a)
		err := a.Refuse()
		if (err == nil) != c.may || err != nil && failure.ReasonOf(err) != "ENROLMENT_CONTESTED" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := identity.MayRepeat(true); err != nil {
		t.Error(err)
	}
	if err := identity.MayRepeat(false); failure.ReasonOf(err) != "CERTIFICATE_REVOKED" {
		t.Error(err)
	}
}
