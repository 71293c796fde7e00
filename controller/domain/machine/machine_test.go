package machine

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/failure"
)

func TestWhatMayBeWritten(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		got    error
		reason string
	}{
		"a machine":                  {MayUpdate("m-1", false), ""},
		"a deleted one":              {MayUpdate("m-1", true), "MACHINE_DELETED"},
		"a light":                    {MayLight("m-1", "redfish://b", ""), ""},
		"a light of ours":            {MayLight("m-1", "redfish://b", fleet.AgentProvider), ""},
		"a light without a BMC":      {MayLight("m-1", "", fleet.AgentProvider), "NO_BMC"},
		"a light of another program": {MayLight("m-1", "redfish://b", "maas"), "NO_BMC"},
	} {
		if got := failure.ReasonOf(c.got); got != c.reason {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, c := range []struct {
		stored, wanted string
		named          bool
		want, reason   string
	}{
		{"", "", false, "", ""}, {"", "x", false, "x", ""}, {"x", "x", true, "x", ""}, {"x", "", false, "x", ""},
		{"x", "", true, "", "EXTERNAL_ID_IMMUTABLE"}, {"x", "y", false, "", "EXTERNAL_ID_IMMUTABLE"},
	} {
		got, err := ExternalID(c.stored, c.wanted, c.named)
		if got != c.want || failure.ReasonOf(err) != c.reason {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

func TestCursors(t *testing.T) {
	t.Parallel()
	here := Cursor{Version: CursorVersion, System: "s", Timeline: "1", Incarnation: "i", Xid: "12", Machine: "m-1",
		Selections: "d"}
	read, err := ParseCursor(here.String())
	if err != nil || read != here {
		t.Fatalf("%+v, %v", read, err)
	}
	for name, text := range map[string]string{
		"no cursor": "x!", "no JSON": base64.RawURLEncoding.EncodeToString([]byte("{")), "no version": Cursor{Xid: "1"}.String(),
		"no place": Cursor{Version: 1}.String(), "no number": Cursor{Version: 1, Xid: "-1"}.String(),
		"too long": Cursor{Version: 1, Xid: "123456789012345678901"}.String(),
	} {
		if _, err := ParseCursor(text); failure.ReasonOf(err) != "INVALID_CURSOR" {
			t.Errorf("%s: %v", name, err)
		}
	}
	large := Cursor{Version: 1, Xid: "99999999999999999999"} // 20 digits, and no number of a transaction
	if _, err := large.Transaction(); failure.ReasonOf(err) != "INVALID_CURSOR" {
		t.Errorf("a number that is too large: %v", err)
	}
	if err := here.ContinuesAt(Cursor{System: "s", Timeline: "1", Incarnation: "i", Selections: "d"}); err != nil {
		t.Error(err)
	}
	for name, other := range map[string]Cursor{
		"another cluster":     {System: "x", Timeline: "1", Incarnation: "i", Selections: "d"},
		"another timeline":    {System: "s", Timeline: "2", Incarnation: "i", Selections: "d"},
		"another incarnation": {System: "s", Timeline: "1", Incarnation: "x", Selections: "d"},
		"other selections":    {System: "s", Timeline: "1", Incarnation: "i"},
	} {
		if err := here.ContinuesAt(other); failure.ReasonOf(err) != "CURSOR_EXPIRED" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDeparturesMustBeKept(t *testing.T) {
	t.Parallel()
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		at     Cursor
		d      Departures
		since  time.Time
		reason string
	}{
		"a time that is kept":     {Cursor{Xid: "0"}, Departures{Since: noon, Through: 5}, noon, ""},
		"a time before":           {Cursor{Xid: "9"}, Departures{Since: noon, Through: 5}, noon.Add(-1), "CURSOR_EXPIRED"},
		"a place behind":          {Cursor{Xid: "6", Selections: "d"}, Departures{Since: noon, Through: 5}, time.Time{}, ""},
		"a place at the last one": {Cursor{Xid: "5", Selections: "d"}, Departures{Since: noon, Through: 5}, noon, "CURSOR_EXPIRED"},
		"nothing was removed":     {Cursor{Xid: "0", Selections: "d"}, Departures{Since: noon}, time.Time{}, ""},
	} {
		if got := failure.ReasonOf(c.at.Kept(c.d, c.since)); got != c.reason {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestWhatIsInUseIsNamedToThoseWhoSeeAllMachines: a caller with roles on some machines learns no name outside them.
func TestWhatIsInUseIsNamedToThoseWhoSeeAllMachines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by    access.Caller
		named bool
	}{
		"the controller itself": {access.Caller{}, true},
		"a token":               {access.Caller{Name: "ci", Scope: access.ScopeOperate}, true},
		"a role on all machines": {access.Caller{Name: "ann", Need: access.ScopeOperate,
			Grants: []access.Grant{{Role: access.Operator}, {Role: access.Operator, Selection: "site=x"}}}, true},
		"a role on some machines": {access.Caller{Name: "eve", Need: access.ScopeOperate,
			Grants: []access.Grant{{Role: access.Viewer}, {Role: access.Operator, Selection: "site=x"}}}, false},
	} {
		for _, f := range []*failure.Error{
			MACInUse(c.by, "machine.spec.mac_addresses", "52:54:00:00:00:01", "m-2"), BMCInUse(c.by, "10.0.0.7", "m-2"),
		} {
			if !strings.HasSuffix(f.Reason, "_IN_USE") || strings.Contains(fmt.Sprintf("%+v", f), "m-2") != c.named {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}
