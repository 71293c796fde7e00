package rollout

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/membership"
	"github.com/ingot-metal/ingot/internal/failure"
)

func TestRefusalsOfRollouts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		got           error
		reason, shows string
	}{
		"as many as there may be": {MayHold(MaxMachines, "filter"), "", ""},
		"too many":                {MayHold(MaxMachines+1, "filter"), "ROLLOUT_TOO_LARGE", "more than 10000 machines"},
		"as previewed":            {Previewed("a", "a"), "", ""},
		"another preview":         {Previewed("a", "b"), "ROLLOUT_CHANGED", "since the preview; look at a new one: its digest is a"},
		"a wave":                  {NotEmpty(1, 3), "", ""},
		"no wave":                 {NotEmpty(0, 3), "ROLLOUT_EMPTY", "no machine"},
	} {
		if failure.ReasonOf(c.got) != c.reason || c.got != nil && !strings.Contains(c.got.Error(), c.shows) {
			t.Errorf("%s: %v", name, c.got)
		}
	}
	if f := failure.From(NotEmpty(0, 3)); f.Metadata["refused"] != "3" {
		t.Errorf("%+v", f)
	}
}

// TestOthersApprove: people are compared by identity, and by name where one of the two has none.
func TestOthersApprove(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a      Approval
		reason string
	}{
		{Approval{"d", "d", "ann", "1", "ann", "2"}, ""}, {Approval{"d", "d", "ann", "1", "bob", "1"}, "ROLLOUT_SELF_APPROVAL"},
		{Approval{"d", "d", "ann", "", "ann", "2"}, "ROLLOUT_SELF_APPROVAL"}, {Approval{"d", "d", "ann", "", "bob", "2"}, ""},
		{Approval{"d", "d", "ann", "1", "ann", ""}, "ROLLOUT_SELF_APPROVAL"}, {Approval{"d", "d", "ann", "1", "bob", ""}, ""},
		{Approval{"d", "e", "ann", "1", "ann", "1"}, "ROLLOUT_CHANGED"}, {Approval{"d", "", "ann", "1", "bob", "2"}, "ROLLOUT_CHANGED"},
	} {
		if got := failure.ReasonOf(c.a.Refuse()); got != c.reason {
			t.Errorf("%+v: %q", c.a, got)
		}
	}
	// bob has created nothing: he and ann are one person.
	f := failure.From(Approval{"d", "d", "ann", "1", "bob", "1"}.Refuse())
	if f == nil || !strings.HasPrefix(f.Message, "ann has created the rollout, and is the same person as bob") {
		t.Errorf("%v", f)
	}
}

// TestRefusedActionsNameTheRollout in every state, with a text for each reason.
func TestRefusedActionsNameTheRollout(t *testing.T) {
	t.Parallel()
	for _, s := range States() {
		for _, a := range Actions() {
			want := Act(s, a)
			to, err := Take("ro-1", s, a)
			f := failure.From(err)
			if to != want.To || failure.ReasonOf(err) != want.Refused {
				t.Errorf("%s %s: %s, %v", a, s, to, err)
			}
			if f != nil && (!strings.HasPrefix(f.Message, "the rollout ") ||
				!strings.HasSuffix(f.Message, " (ro-1 is "+string(s)+")") || f.Metadata["rollout_id"] != "ro-1") {
				t.Errorf("%s %s: %+v", a, s, f)
			}
		}
	}
}

func TestWorkStaysWithinTheCreatorsRights(t *testing.T) {
	t.Parallel()
	terms, err := membership.ParseSelection("site=x")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		level membership.Level
		site  string
		may   bool
	}{
		{membership.Operate, "x", true}, {membership.Admin, "x", true}, {membership.Read, "x", false},
		{membership.Operate, "y", false},
	} {
		f := membership.Fields{MachineID: "m-1", Spec: map[string]string{"site": c.site}}
		err := MayWork("ann", membership.Roles{{Level: c.level, Terms: terms}}, f)
		if (err == nil) != c.may || err != nil && failure.ReasonOf(err) != ReasonOutside {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := MayWork("ann", nil, membership.Fields{}); failure.ReasonOf(err) != ReasonOutside {
		t.Errorf("without rights: %v", err)
	}
}
