package credential

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
	"github.com/ingot-metal/ingot/internal/failure"
)

const endpoint = "redfish://10.0.0.7"

func stored() *Settings {
	return &Settings{Ref: "rack", Sealed: []byte("x"), Allowed: bmcaddr.Allowance{"10.0.0.0/24"}}
}

// refusal is one fault, with the reason and the field or part of the message by which its refusal is known.
type refusal[T any] struct {
	name, reason, shows string
	fault               func(*T)
}

// inOrder holds that each fault has its refusal, also together with all faults after it.
func inOrder[T any](t *testing.T, good func() T, refuse func(T) error, faults []refusal[T]) {
	t.Helper()
	if err := refuse(good()); err != nil {
		t.Fatalf("without a fault: %v", err)
	}
	for i, f := range faults {
		alone, all := good(), good()
		f.fault(&alone)
		for k := len(faults) - 1; k >= i; k-- {
			faults[k].fault(&all)
		}
		for _, with := range []T{alone, all} {
			if err := refuse(with); failure.ReasonOf(err) != f.reason || !strings.Contains(err.Error(), f.shows) {
				t.Errorf("%s: %v", f.name, err)
			}
		}
	}
}

func TestRefusalsOfRequestsInTheirOrder(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		kind                      Kind
		machine, named, forgotten string
	}{
		{BMC, "not of this site", "does not name the credentials", "no BMC credentials"},
		{SSH, "not of this site", "does not name the SSH credentials", "no SSH credentials"},
		{MAAS, "or not of provider maas", "not that of the machine", "no MAAS region"},
	} {
		faults := []refusal[Request]{
			{"a host's agent", "SCOPE_TOO_SMALL", "only site agents", func(r *Request) { r.By.Role = "host" }},
			{"an agent of no site", "SCOPE_TOO_SMALL", "only site agents", func(r *Request) { r.By.Site = "" }},
			{"no such machine", "MACHINE_NOT_FOUND", k.machine, func(r *Request) { r.Machine = nil }},
			{"others are named", "CREDENTIALS_NOT_FOUND", k.named, func(r *Request) {
				if r.Machine != nil {
					r.Machine.Ref = "other"
				}
			}},
			{"none are named", "CREDENTIALS_NOT_FOUND", k.named, func(r *Request) {
				r.Ref = ""
				if r.Machine != nil {
					r.Machine.Ref = ""
				}
			}},
			{"not stored", "CREDENTIALS_NOT_FOUND", k.forgotten, func(r *Request) { r.Stored = nil }},
		}
		good := func() Request {
			return Request{Kind: k.kind, By: Agent{"site", "lab"}, MachineID: "m-1", Ref: "rack",
				Machine: &Named{Ref: "rack", Endpoint: endpoint}, Stored: stored()}
		}
		inOrder(t, good, Request.Refuse, faults)
		elsewhere := good()
		elsewhere.Machine.Endpoint = "redfish://10.0.1.7"
		if got, want := failure.ReasonOf(elsewhere.Refuse()), "BMC_ENDPOINT_NOT_ALLOWED"; (got == want) != (k.kind == BMC) {
			t.Errorf("kind %d at another endpoint: %s", k.kind, got)
		}
	}
}

func TestMayGoTo(t *testing.T) {
	t.Parallel()
	plain := *stored()
	plain.PlainHTTP = true
	for _, c := range []struct {
		by       Settings
		endpoint string
		reason   string
	}{
		{*stored(), endpoint, ""}, {*stored(), "redfish://10.0.1.7", "BMC_ENDPOINT_NOT_ALLOWED"},
		{*stored(), ":", "BMC_ENDPOINT_NOT_ALLOWED"}, {Settings{}, endpoint, "BMC_ENDPOINT_NOT_ALLOWED"},
		{*stored(), "redfish+http://10.0.0.7", "BMC_PLAIN_HTTP_NOT_ALLOWED"}, {plain, "redfish+http://10.0.0.7", ""},
		{plain, "redfish+http://10.0.1.7", "BMC_ENDPOINT_NOT_ALLOWED"},
	} {
		if got := failure.ReasonOf(c.by.MayGoTo(c.endpoint)); got != c.reason {
			t.Errorf("%+v to %s: %s", c.by, c.endpoint, got)
		}
	}
}

func TestChangesOfCredentials(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	old := Settings{Ref: "rack", Sealed: []byte("old"), Allowed: bmcaddr.Allowance{"10.0.0.7"}, PlainHTTP: true,
		Adopted: true}
	if _, err := (Change{Ref: "rack"}).Over(Settings{}); failure.ReasonOf(err) != "CREDENTIALS_NOT_FOUND" {
		t.Errorf("nothing over nothing: %v", err)
	}
	if _, err := (Change{Ref: "rack", Sealed: []byte("x")}).Over(Settings{}); failure.ReasonOf(err) != "INVALID_FIELD" {
		t.Errorf("new ones for no BMC: %v", err)
	}
	kept, err := Change{Ref: "rack"}.Over(old)
	if err != nil || string(kept.Sealed) != "old" || !kept.PlainHTTP || !kept.Adopted || len(kept.Allowed) != 1 {
		t.Errorf("kept: %+v, %v", kept, err)
	}
	next, err := Change{Ref: "rack", Sealed: []byte("new"), Allowed: bmcaddr.Allowance{"a", "b"}, PlainHTTP: &no,
		UnverifiedTLS: &yes}.Over(old)
	if err != nil || string(next.Sealed) != "new" || next.PlainHTTP || !next.UnverifiedTLS || next.Adopted ||
		len(next.Allowed) != 2 {
		t.Errorf("changed: %+v, %v", next, err)
	}
}

func TestWhatIsNamedIsNotRemoved(t *testing.T) {
	t.Parallel()
	for kind, reason := range map[Kind]string{BMC: "CREDENTIALS_IN_USE", SSH: "CREDENTIALS_IN_USE",
		MAAS: "CREDENTIALS_IN_USE", Cluster: "CLUSTER_IN_USE"} {
		if err := kind.MayRemove("c", Use{}); err != nil {
			t.Errorf("kind %d, unused: %v", kind, err)
		}
		f := failure.From(kind.MayRemove("c", Use{Machine: "m-1", Operation: "op-1"}))
		if f == nil || f.Reason != reason || f.Metadata["machine_id"] != "m-1" || f.Metadata["operation_id"] != "" {
			t.Errorf("kind %d, named by a machine: %+v", kind, f)
		}
	}
	f := failure.From(Cluster.MayRemove("c", Use{Operation: "op-1"}))
	if f == nil || f.Reason != "CLUSTER_IN_USE" || f.Metadata["operation_id"] != "op-1" {
		t.Errorf("needed by work: %+v", f)
	}
}

func TestRefusalsOfPasswordChangesInTheirOrder(t *testing.T) {
	t.Parallel()
	good := func() PasswordChange {
		return PasswordChange{AgentID: "a-site", By: Agent{"site", "lab"}, MachineID: "m-1",
			Command: Command{ID: "c-1", ExecutorID: "a-site", State: operation.Granted, Needs: true},
			Ordered: Named{Ref: "rack", Endpoint: endpoint}, Machine: &Named{Ref: "rack", Endpoint: endpoint}, Stored: stored()}
	}
	inOrder(t, good, PasswordChange.Refuse, []refusal[PasswordChange]{
		{"another's command", "COMMAND_NOT_FOUND", "", func(p *PasswordChange) { p.Command.ExecutorID = "a-other" }},
		{"of another kind", "COMMAND_NOT_FOUND", "", func(p *PasswordChange) { p.Command.Needs = false }},
		{"not granted", "GRANT_REFUSED", "SENT", func(p *PasswordChange) { p.Command.State = operation.Sent }},
		{"a host's agent", "SCOPE_TOO_SMALL", "", func(p *PasswordChange) { p.By.Role = "host" }},
		{"the machine is gone", "EXECUTION_FAILED", "", func(p *PasswordChange) { p.Machine = nil }},
		{"another BMC", "EXECUTION_FAILED", "", func(p *PasswordChange) { p.Ordered.Endpoint = "redfish://10.0.0.8" }},
		{"other credentials", "EXECUTION_FAILED", "", func(p *PasswordChange) { p.Ordered.Ref = "other" }},
		{"not stored", "CREDENTIALS_NOT_FOUND", "", func(p *PasswordChange) { p.Stored = nil }},
		{"not for the BMC", "BMC_ENDPOINT_NOT_ALLOWED", "", func(p *PasswordChange) {
			if p.Stored != nil {
				p.Stored.Allowed = nil
			}
		}},
		{"of two machines", "BMC_SHARED", "", func(p *PasswordChange) {
			p.Neighbours = []start.Neighbour{{MachineID: "m-2", BMCEndpoint: endpoint}}
		}},
	})
	if err := Settled("c-1", "c-1"); err != nil {
		t.Error(err)
	}
	if err := Settled("c-2", "c-1"); failure.ReasonOf(err) != "GRANT_REFUSED" {
		t.Error(err)
	}
}

func TestAClusterIsOpenedByAGrantedCommand(t *testing.T) {
	t.Parallel()
	good := func() Command { return Command{ID: "c-1", ExecutorID: "a-1", State: operation.Granted} }
	inOrder(t, good, func(c Command) error { return c.OpensCluster("a-1") }, []refusal[Command]{
		{"unknown", "COMMAND_NOT_FOUND", "of yours", func(c *Command) { *c = Command{ID: "c-1"} }},
		{"another's", "COMMAND_NOT_FOUND", "of yours", func(c *Command) { c.ExecutorID = "a-2" }},
		{"not granted", "GRANT_REFUSED", "ACKED", func(c *Command) { c.State = operation.Acked }},
	})
}

func TestCertificatesThatABMCShowsAreTrusted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		have    Certificate
		sum     string
		changes bool
		reason  string
	}{
		{Certificate{"old", "new"}, "new", true, ""}, {Certificate{"old", "new"}, "old", false, ""},
		{Certificate{"old", "new"}, "other", false, "BMC_CERTIFICATE_NOT_OFFERED"},
		{Certificate{"old", ""}, "", false, "BMC_CERTIFICATE_NOT_OFFERED"},
		{Certificate{}, "", false, "BMC_CERTIFICATE_NOT_OFFERED"},
	} {
		changes, err := c.have.Trust("m-1", c.sum)
		if changes != c.changes || failure.ReasonOf(err) != c.reason {
			t.Errorf("%+v, %q: %t, %v", c.have, c.sum, changes, err)
		}
	}
	for named, reason := range map[Named]string{{"rack", endpoint}: "", {"", endpoint}: "NO_BMC", {"rack", ""}: "NO_BMC"} {
		if got := failure.ReasonOf(MayAskAgain("m-1", named)); got != reason {
			t.Errorf("%+v: %s", named, got)
		}
	}
}
