package membership_test

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/membership"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/label"
)

func operator() membership.Writer {
	return membership.Writer{Caller: access.Caller{Name: "op", Scope: access.ScopeOperate},
		Roles: membership.Roles{{Level: membership.Operate}}}
}

func target() membership.Target {
	return membership.Target{BMCEndpoint: "b", BMCCredentials: "rack", SSHEndpoint: "s", SSHCredentials: "ssh",
		SSHHostKeys: []string{"k"}, Site: "x", MACs: []string{"m1", "m2"}}
}

// write is a write by an operator that changes nothing.
func write() membership.Write {
	before := fields("m-1", nil, pairs{"site": "x"})
	return membership.Write{By: operator(), Before: &before, After: before, Was: target(), Becomes: target()}
}

func TestRefusalsOfWritesInTheirOrder(t *testing.T) {
	t.Parallel()
	faults := []struct {
		name, reason, field string
		change              func(*membership.Write)
	}{
		{"a machine of others", "", "", func(w *membership.Write) {
			w.By.Roles = membership.Roles{{Level: membership.Operate, Terms: selection(t, "site=z")}}
		}},
		{"a field in use", "FIELD_IN_USE", "machine.spec.rack", func(w *membership.Write) {
			w.After.Spec = pairs{"site": "x", "rack": "r"}
			w.Uses = []membership.Use{{Kind: membership.Budget, Name: "racks", Key: "rack"}}
		}},
		{"another BMC", "SCOPE_TOO_SMALL", "machine.spec.bmc_endpoint", func(w *membership.Write) {
			w.Becomes.BMCEndpoint = "c"
		}},
		{"another password", "SCOPE_TOO_SMALL", "machine.spec.bmc_credentials_ref", func(w *membership.Write) {
			w.Becomes.BMCCredentials = "c"
		}},
		{"another key", "SCOPE_TOO_SMALL", "machine.spec.ssh_credentials_ref", func(w *membership.Write) {
			w.Becomes.SSHCredentials = "c"
		}},
		{"another host", "SCOPE_TOO_SMALL", "machine.spec.ssh_endpoint", func(w *membership.Write) {
			w.Becomes.SSHEndpoint = "c"
		}},
		{"other host keys", "SCOPE_TOO_SMALL", "machine.spec.ssh_host_keys", func(w *membership.Write) {
			w.Becomes.SSHHostKeys = nil
		}},
		{"another site", "SCOPE_TOO_SMALL", "machine.spec.site", func(w *membership.Write) { w.Becomes.Site = "y" }},
		{"other hardware", "SCOPE_TOO_SMALL", "machine.spec.mac_addresses", func(w *membership.Write) {
			w.Becomes.MACs = []string{"m1"}
		}},
	}
	for i, f := range faults {
		alone, all := write(), write()
		f.change(&alone)
		for k := len(faults) - 1; k >= i; k-- {
			faults[k].change(&all)
		}
		for _, w := range []membership.Write{alone, all} {
			got := w.Refuse()
			if f.reason == "" {
				if failure.ReasonOf(got) != "OUTSIDE_SELECTION" {
					t.Errorf("%s: %v", f.name, got)
				}
				continue
			}
			e := failure.From(got)
			if e == nil || e.Reason != f.reason || e.Fields[0].Path != f.field {
				t.Errorf("%s: %v", f.name, got)
			}
		}
		alone.By.Roles = membership.Roles{{Level: membership.Admin}}
		if err := alone.Refuse(); err != nil {
			t.Errorf("%s, by an admin: %v", f.name, err)
		}
	}
}

func TestWritesThatNeedNoAdmin(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*membership.Write){
		"nothing":          func(*membership.Write) {},
		"another order":    func(w *membership.Write) { w.Becomes.MACs = []string{"m2", "m1"} },
		"a free field":     func(w *membership.Write) { w.After.Labels = pairs{"team": "a"} },
		"a note about SSH": func(w *membership.Write) { noSSH(w); w.Becomes.SSHEndpoint, w.Becomes.SSHHostKeys = "other", nil },
		"no credentials":   func(w *membership.Write) { noSSH(w); noBMC(w); w.Becomes.Site, w.Becomes.MACs = "y", nil },
		"a new machine of no credentials": func(w *membership.Write) {
			w.Before, w.Was, w.Becomes = nil, membership.Target{Site: "x"}, membership.Target{Site: "x", MACs: []string{"m"}}
		},
		"a machine in the own selection": func(w *membership.Write) {
			w.By.Roles = append(w.By.Roles, membership.Grant{Level: membership.Admin, Terms: selection(t, "site=x")})
			w.Becomes = membership.Target{}
		},
	} {
		w := write()
		change(&w)
		if err := w.Refuse(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*membership.Write){
		"an enrolled machine's hardware": func(w *membership.Write) { w.Enrolled = true; w.Becomes.MACs = nil },
		"a new machine's BMC": func(w *membership.Write) {
			w.Before, w.Was, w.Becomes = nil, membership.Target{Site: "x"}, membership.Target{Site: "x", BMCEndpoint: "b"}
		},
		"by the image, which no client writes": func(w *membership.Write) {
			w.By.Roles = append(w.By.Roles, membership.Grant{Level: membership.Admin, Terms: selection(t, "image=i")})
			w.Before.Image, w.After.Image, w.Becomes.BMCEndpoint = "i", "i", "c"
		},
	} {
		w := write()
		noSSH(&w)
		noBMC(&w)
		change(&w)
		if err := w.Refuse(); failure.ReasonOf(err) != "SCOPE_TOO_SMALL" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func noSSH(w *membership.Write) { w.Was.SSHCredentials, w.Becomes.SSHCredentials = "", "" }

func noBMC(w *membership.Write) {
	w.Was.BMCEndpoint, w.Becomes.BMCEndpoint, w.Was.BMCCredentials, w.Becomes.BMCCredentials = "", "", "", ""
}

// TestUsesAreAskedForWhereTheyCount: a write that changes no field needs none, and an admin of all machines neither.
func TestUsesAreAskedForWhereTheyCount(t *testing.T) {
	t.Parallel()
	same, changed, fresh, admin := write(), write(), write(), write()
	changed.After.Labels = pairs{"a": "b"}
	fresh.Before = nil
	admin.Before, admin.By.Roles = nil, membership.Roles{{Level: membership.Admin}}
	for name, c := range map[string]struct {
		w    membership.Write
		want bool
	}{"same": {same, false}, "changed": {changed, true}, "new": {fresh, true}, "admin": {admin, false}} {
		if got := c.w.AsksUses(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAddressesOfOtherRecords(t *testing.T) {
	t.Parallel()
	last := fields("m-0", nil, pairs{"site": "x", "rack": "a"})
	good := membership.TakenAddress{By: operator(), Last: last, After: fields("m-1", nil, pairs{"site": "x", "rack": "a"})}
	if err := good.Refuse(); err != nil {
		t.Error(err)
	}
	moved, tpm, others := good, good, good
	moved.DeletedWithTPM = true
	moved.Uses = []membership.Use{{Kind: membership.Budget, Name: "racks", Key: "rack"}}
	moved.After.Spec = pairs{"site": "x"}
	tpm.DeletedWithTPM = true
	others.By.Roles, others.DeletedWithTPM =
		membership.Roles{{Level: membership.Operate, Terms: selection(t, "site=z")}}, true
	if err := others.Refuse(); failure.ReasonOf(err) != "OUTSIDE_SELECTION" {
		t.Errorf("of another's machine: %v", err)
	}
	for _, c := range []struct {
		a      membership.TakenAddress
		reason string
	}{{moved, "FIELD_IN_USE"}, {tpm, "SCOPE_TOO_SMALL"}} {
		if err := c.a.Refuse(); failure.ReasonOf(err) != c.reason {
			t.Errorf("want %s: %v", c.reason, err)
		}
		c.a.By.Roles = membership.Roles{{Level: membership.Admin}}
		if err := c.a.Refuse(); err != nil {
			t.Errorf("an admin: %v", err)
		}
	}
}

// TestRefusalsNameWhatTheCallerMayRead: roles and tokens are for admins, the rest for those who see every machine.
func TestRefusalsNameWhatTheCallerMayRead(t *testing.T) {
	t.Parallel()
	here := membership.Roles{{Level: membership.Operate, Terms: selection(t, "site=x")}}
	everywhere := membership.Roles{{Level: membership.Operate}}
	for _, c := range []struct {
		use   membership.Use
		roles membership.Roles
		shows string
		named bool
	}{
		{membership.Use{Kind: membership.Budget, Name: "n", Key: "rack"}, everywhere, "used by budget n", true},
		{membership.Use{Kind: membership.Budget, Name: "n", Key: "rack"}, here, "used by a budget", false},
		{membership.Use{Kind: membership.IdentityLevel, Name: "n", Key: "rack"}, here, "used by an identity level", false},
		{membership.Use{Kind: membership.ApprovalPolicy, Name: "n", Key: "rack"}, here, "used by an approval policy", false},
		{membership.Use{Kind: membership.Role, Name: "n", Key: "rack"}, everywhere, "used by a role", false},
		{membership.Use{Kind: membership.Token, Name: "n", Key: "rack"}, everywhere, "used by a token", false},
	} {
		w := write()
		w.By.Roles, w.Uses, w.After.Spec = c.roles, []membership.Use{c.use}, pairs{"site": "x", "rack": "r"}
		e := failure.From(w.Refuse())
		if e == nil || !strings.Contains(e.Message, "the field rack may be changed only by an admin") ||
			!strings.HasSuffix(e.Message, c.shows) || e.Metadata["key"] != "rack" ||
			e.Metadata["used_by"] != string(c.use.Kind) || (e.Metadata["used_by_name"] == "n") != c.named {
			t.Errorf("%+v: %+v", c.use, e)
		}
	}
	w := write()
	w.Before, w.Uses = nil, []membership.Use{{Kind: membership.Budget, Name: "half", Counted: true}}
	e := failure.From(w.Refuse())
	if e == nil ||
		!strings.Contains(e.Message, "registered only by an admin of all machines: their number is used by budget half") ||
		e.Fields[0].Path != "machine" ||
		e.Metadata["key"] != "" {
		t.Errorf("a new machine that raises a percentage: %+v", e)
	}
	w = write()
	w.After.Labels = pairs{"team": "a"}
	w.Uses = []membership.Use{{Kind: membership.Budget, Name: "t", Key: "labels.team"}}
	if e := failure.From(w.Refuse()); e == nil || e.Fields[0].Path != "machine.labels.team" {
		t.Errorf("a label: %+v", e)
	}
	w.After = fields("m-1", nil, pairs{"site": "x", "cluster": "c"})
	w.Uses = []membership.Use{{Kind: membership.Budget, Name: "t", Key: "cluster"}}
	if e := failure.From(w.Refuse()); e == nil || e.Fields[0].Path != "machine.spec.target_cluster_ref" {
		t.Errorf("a cluster: %+v", e)
	}
}

func TestOnlyAnAdminOffers(t *testing.T) {
	t.Parallel()
	const operate, admin = access.ScopeOperate, access.ScopeAdmin
	offered := pairs{label.Offered: "cluster-api"}
	for _, c := range []struct {
		scope       access.Scope
		old, wanted pairs
		refused     bool
	}{
		{operate, nil, pairs{"team": "a"}, false}, {operate, offered, offered, false}, {operate, nil, offered, true},
		{operate, offered, nil, true}, {operate, offered, pairs{label.Offered: "other"}, true},
		{operate, nil, pairs{label.Offered: ""}, true}, {admin, nil, offered, false}, {admin, offered, nil, false},
	} {
		err := membership.Writer{Caller: access.Caller{Name: "op", Scope: c.scope}}.MayOffer(c.old, c.wanted)
		if (err != nil) != c.refused || c.refused && failure.From(err).Metadata["required_scope"] != "admin" {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestRolesOfWriters: a scope counts on all machines, a role on its selection, and one that names a state operates at
// most.
func TestRolesOfWriters(t *testing.T) {
	t.Parallel()
	here, elsewhere := fields("m-1", nil, pairs{"site": "x"}), fields("m-2", nil, pairs{"site": "y"})
	for name, c := range map[string]struct {
		by              access.Caller
		here, elsewhere membership.Level
	}{
		"a token": {access.Caller{Name: "ci", Scope: access.ScopeAdmin}, membership.Admin, membership.Admin},
		"a token that reports": {access.Caller{Name: "pxe", Scope: access.ScopeReport}, membership.None,
			membership.None},
		"an admin of a site": {access.Caller{Name: "eve", Grants: []access.Grant{{Role: access.Viewer},
			{Role: access.Admin, Selection: "site=x"}}}, membership.Admin, membership.Read},
		"an admin of a state": {access.Caller{Name: "eve", Grants: []access.Grant{
			{Role: access.Admin, Selection: "site=x,phase!=IDLE"}}}, membership.Operate, membership.None},
	} {
		by, err := membership.WriterOf(c.by)
		if err != nil {
			t.Fatal(err)
		}
		if by.Roles.LevelAt(here) != c.here || by.Roles.LevelAt(elsewhere) != c.elsewhere {
			t.Errorf("%s: %d and %d", name, by.Roles.LevelAt(here), by.Roles.LevelAt(elsewhere))
		}
		err = by.MayOperate(elsewhere)
		if failure.ReasonOf(err) == "OUTSIDE_SELECTION" != (c.elsewhere < membership.Operate) {
			t.Errorf("%s operates elsewhere: %v", name, err)
		}
	}
	if _, err := membership.WriterOf(access.Caller{Grants: []access.Grant{{Selection: "site"}}}); err == nil {
		t.Error("a selection that cannot be read counts")
	}
}
