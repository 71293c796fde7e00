package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/failure"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// fault makes one refusal, which has a reason and shows a part of its message.
type fault[T any] struct {
	name, reason, shows string
	make                func(*T)
}

// inOrder holds that each fault has its refusal, also together with all faults after it.
func inOrder[T any](t *testing.T, good func() T, refuse func(T) error, faults []fault[T]) {
	t.Helper()
	if err := refuse(good()); err != nil {
		t.Fatalf("without a fault: %v", err)
	}
	for i, f := range faults {
		alone, all := good(), good()
		f.make(&alone)
		for k := len(faults) - 1; k >= i; k-- {
			faults[k].make(&all)
		}
		for _, with := range []T{alone, all} {
			if err := refuse(with); failure.ReasonOf(err) != f.reason || !strings.Contains(err.Error(), f.shows) {
				t.Errorf("%s: %v", f.name, err)
			}
		}
	}
}

func TestRefusalsOfTokensInTheirOrder(t *testing.T) {
	t.Parallel()
	good := func() Issue {
		return Issue{RequestID: "r", Machine: &Machine{ID: "m-1"},
			Earlier: &Earlier{TokenID: "t-1", ExpiresAt: noon.Add(1), SameSecret: true}}
	}
	refuse := func(i Issue) error { return i.Refuse(noon) }
	inOrder(t, good, refuse, []fault[Issue]{
		{"a deleted machine", "MACHINE_DELETED", "m-1", func(i *Issue) { i.Machine.Deleted = true }},
		{"another request", "REQUEST_ID_REUSED", "role, site", func(i *Issue) {
			i.Earlier.Differing = []string{"role", "site"}
		}},
		{"used", "TOKEN_SPENT", "t-1", func(i *Issue) { i.Earlier.Used = true }},
		{"revoked", "TOKEN_SPENT", "t-1", func(i *Issue) { i.Earlier.Revoked = true }},
		{"expired", "TOKEN_SPENT", "t-1", func(i *Issue) { i.Earlier.ExpiresAt = noon }},
		{"of another secret", "TOKEN_SPENT", "t-1", func(i *Issue) { i.Earlier.SameSecret = false }},
	})
	if err := (Issue{}).Refuse(noon); err != nil {
		t.Errorf("the first one of a site: %v", err)
	}
	for _, c := range []struct {
		used, revoked bool
		reason        string
	}{{false, false, ""}, {true, false, "TOKEN_NOT_REVOCABLE"}, {false, true, ""}, {true, true, ""}} {
		if got := failure.ReasonOf(MayRevoke(c.used, c.revoked)); got != c.reason {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// arrival is a newcomer with a token.
type arrival struct {
	token *Token
	Newcomer
}

func bound() arrival {
	return arrival{
		&Token{SecretHash: []byte("s"), ExpiresAt: noon.Add(1), Region: "r", Provider: "p", MAC: "52:54:00:00:00:0a",
			Serial: "S1", Machine: &Machine{ID: "m-1", State: fleet.BootstrapIssued}},
		Newcomer{SecretHash: []byte("s"), KeyDigest: []byte("k"), Region: "r", Provider: "p",
			MACs: []string{"52:54:00:00:00:0A"}, Serial: "S1"},
	}
}

func TestRefusalsOfEnrolmentInTheirOrder(t *testing.T) {
	t.Parallel()
	refuse := func(a arrival) error { return Enroll(a.token, a.Newcomer, noon).Refused }
	const invalid = "BOOTSTRAP_TOKEN_INVALID"
	inOrder(t, bound, refuse, []fault[arrival]{
		{"a wrong secret", invalid, "", func(a *arrival) { a.SecretHash = []byte("x") }},
		{"a revoked token", invalid, "", func(a *arrival) { a.token.Revoked = true }},
		{"an expired token", invalid, "", func(a *arrival) { a.token.ExpiresAt = noon }},
		{"another region", "REGION_PROVIDER_MISMATCH", "region", func(a *arrival) { a.Region = "x" }},
		{"another provider", "REGION_PROVIDER_MISMATCH", "provider", func(a *arrival) { a.Provider = "x" }},
		{"other MAC addresses", "HARDWARE_MISMATCH", "MAC address", func(a *arrival) { a.MACs = nil }},
		{"another serial number", "HARDWARE_MISMATCH", "serial", func(a *arrival) { a.Serial = "x" }},
		{"a retired machine", invalid, "", func(a *arrival) { a.token.Machine.State = fleet.Retired }},
		{"a deleted machine", invalid, "", func(a *arrival) { a.token.Machine.Deleted = true }},
	})
	for name, c := range map[string]struct {
		change func(*arrival)
		again  bool
		audit  string
	}{
		"new":                   {func(*arrival) {}, false, ""},
		"unknown":               {func(a *arrival) { a.token = nil }, false, ""},
		"wrong":                 {func(a *arrival) { a.SecretHash = nil; a.token.Used = true }, false, "wrong, expired or revoked"},
		"used by the key":       {func(*arrival) {}, true, ""},
		"used by the key, gone": {func(a *arrival) { a.token.CertificateStands = false }, false, "used with another key"},
		"used by another key":   {func(a *arrival) { a.KeyDigest = []byte("x") }, false, "used with another key"},
		"used, of another place": {func(a *arrival) { a.Region = "x" }, true,
			""}, // it was bound when it was used
		"of another place": {func(a *arrival) { a.Region = "x"; a.token.Used = false }, false, "bound to another machine"},
		"of a deleted one": {func(a *arrival) { a.token.Machine.Deleted = true; a.token.Used = false }, false, ""},
	} {
		a := bound()
		if strings.HasPrefix(name, "used") {
			a.token.Used, a.token.UsedKey, a.token.CertificateStands = true, []byte("k"), true
		}
		c.change(&a)
		v := Enroll(a.token, a.Newcomer, noon)
		if v.Again != c.again || !strings.HasPrefix(v.Audit, c.audit) || c.audit == "" && v.Audit != "" ||
			(v.Refused == nil) != (c.again || name == "new") {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func TestRefusalsOfCertificates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		role   string
		m      *Machine
		reason string
	}{
		{"site", nil, ""}, {"host", &Machine{State: fleet.Active}, ""}, {Installer, &Machine{}, "REENROLL_REFUSED"},
		{"host", &Machine{State: fleet.Quarantined}, "REENROLL_REFUSED"},
		{"host", &Machine{State: fleet.Retired}, "REENROLL_REFUSED"}, {"host", &Machine{Deleted: true}, "REENROLL_REFUSED"},
	} {
		if got := failure.ReasonOf(MayRenew(c.role, c.m)); got != c.reason {
			t.Errorf("%s of %+v: %q", c.role, c.m, got)
		}
	}
}

func TestRefusalsOfSessionsInTheirOrder(t *testing.T) {
	t.Parallel()
	good := func() Hello {
		return Hello{Known: true, Role: Installer, Machine: &Machine{}, Certificate: &Certificate{}, Stands: true}
	}
	inOrder(t, good, Hello.Refuse, []fault[Hello]{
		{"unknown", "CERTIFICATE_UNKNOWN", "the agent is not known", func(h *Hello) { h.Known = false }},
		{"a deleted machine", "CERTIFICATE_REVOKED", "has been deleted", func(h *Hello) { h.Machine.Deleted = true }},
		{"no certificate", "CERTIFICATE_UNKNOWN", "not recorded", func(h *Hello) { h.Certificate = nil }},
		{"a revoked one", "CERTIFICATE_REVOKED", "revoked or replaced", func(h *Hello) {
			if h.Certificate != nil {
				h.Certificate.Revoked = true
			}
		}},
		{"a replaced one", "CERTIFICATE_REVOKED", "revoked or replaced", func(h *Hello) {
			if h.Certificate != nil {
				h.Certificate.Replaced = true
			}
		}},
		{"its operation has ended", "CERTIFICATE_REVOKED", "has ended", func(h *Hello) { h.Stands = false }},
	})
	host := Hello{Known: true, Role: "host", Certificate: &Certificate{}}
	if err := host.Refuse(); err != nil {
		t.Errorf("a host's agent: %v", err)
	}
}

func TestAGenerationIsWithdrawnFromNamedHolders(t *testing.T) {
	t.Parallel()
	held := []Holder{{"a-1", "m-1"}, {"a-2", ""}, {"a-3", "m-3"}}
	for _, c := range []struct {
		held  []Holder
		left  []string
		shows string
	}{
		{nil, nil, ""}, {held, []string{"m-1", "a-2", "a-3"}, ""},
		{held, []string{"m-1", ""}, "2 agents hold a certificate of generation 4 of the CA: a-2, m-3;"},
		{append(held, held...), nil, "6 agents hold a certificate of generation 4 of the CA: m-1, a-2, m-3, m-1, a-2 and 1 more;"},
	} {
		err := MayWithdraw(4, c.held, c.left)
		if (err == nil) != (c.shows == "") || err != nil && !strings.Contains(err.Error(), "AUTHORITY_IN_USE: "+c.shows) {
			t.Errorf("%v: %v", c.left, err)
		}
	}
}
