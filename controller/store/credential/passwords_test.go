package credential_test

import (
	"fmt"
	"slices"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// passwords is a site with one machine whose BMC gets new passwords.
type passwords struct {
	*storetest.PasswordRig
	t    *testing.T
	made int
}

func (p *passwords) make(command string) (credentialstore.NewPassword, error) {
	return p.Store.Credentials.MakePassword(p.t.Context(), p.Site.ID, command, storetest.Now(),
		func(_ string, current credentialstore.SealedCredentials) ([]byte, error) {
			p.made++
			return fmt.Appendf(nil, "%d after %s", p.made, current.Sealed), nil
		})
}

func (p *passwords) settle(command string, version int64, accepted bool) error {
	return p.Store.Credentials.SettlePassword(p.t.Context(), p.Site.ID, command, version, accepted, storetest.Now())
}

func (p *passwords) inUse(ref string) credentialstore.SealedCredentials {
	p.t.Helper()
	c, err := p.Store.Credentials.CredentialsFor(p.t.Context(), p.Site.ID, "m-1", ref, storetest.Now())
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// TestAPasswordIsKeptUntilItIsKnownWhichTheBMCTakes, over any number of commands whose end is not known.
func TestAPasswordIsKeptUntilItIsKnownWhichTheBMCTakes(t *testing.T) {
	t.Parallel()
	p := &passwords{PasswordRig: storetest.NewPasswordRig(t), t: t}
	first := p.Command("one", false)
	_, err := p.make(first)
	storetest.WantReason(t, err, "GRANT_REFUSED")
	first = p.Command("one", true)
	a, err := p.make(first)
	if err != nil || string(a.Sealed) != "1 after sealed" || a.Tried || a.Current.Version != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	if again, err := p.make(first); err != nil || again.Tried || again.Version != a.Version || p.made != 1 {
		t.Errorf("the same command again: %+v, %v", again, err)
	}
	if c := p.inUse("rack"); c.OwnOf != "" || string(c.Sealed) != "sealed" {
		t.Errorf("before the BMC was seen to take it: %+v", c)
	}
	p.End("one", first)
	second := p.Command("two", true)
	b, err := p.make(second)
	if err != nil || !b.Tried || string(b.Sealed) != "1 after sealed" || b.Version != a.Version {
		t.Fatalf("the next command: %+v, %v", b, err)
	}
	storetest.WantReason(t, p.settle(first, a.Version, true), "GRANT_REFUSED")
	for range 2 {
		if err := p.settle(second, b.Version, true); err != nil {
			t.Fatal(err)
		}
	}
	c := p.inUse("rack")
	if c.OwnOf != "m-1" || string(c.Sealed) != "1 after sealed" || c.Version != b.Version ||
		!slices.Equal(c.Allowed, []string{"10.0.0.7"}) {
		t.Errorf("in force: %+v", c)
	}
	if again, err := p.make(second); err != nil || again.Sealed != nil || again.Current.OwnOf != "m-1" {
		t.Errorf("the command whose password is in force: %+v, %v", again, err)
	}
	if n := storetest.Count(t, p.Store, `SELECT count(*) FROM audit_log WHERE verb = 'CHANGE_BMC_PASSWORD'`); n != 1 {
		t.Errorf("%d rows in the audit log", n)
	}
}

// TestAPasswordThatIsRefusedIsForgotten, and the next one is another.
func TestAPasswordThatIsRefusedIsForgotten(t *testing.T) {
	t.Parallel()
	p := &passwords{PasswordRig: storetest.NewPasswordRig(t), t: t}
	first := p.Command("one", true)
	a, err := p.make(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.settle(first, a.Version, false); err != nil {
		t.Fatal(err)
	}
	p.End("one", first)
	b, err := p.make(p.Command("two", true))
	if err != nil || b.Tried || b.Version == a.Version || string(b.Sealed) != "2 after sealed" {
		t.Errorf("%+v, %v", b, err)
	}
	all, err := p.Store.Credentials.ListCredentials(t.Context(), "", 10)
	if err != nil || all[0].Own != 0 || !slices.Equal(all[0].Open, []string{"m-1"}) {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestAnOwnPasswordStandsForTheCredentialsThatAreNamed: it ends with others, and comes back with the same.
func TestAnOwnPasswordStandsForTheCredentialsThatAreNamed(t *testing.T) {
	t.Parallel()
	p := &passwords{PasswordRig: storetest.NewPasswordRig(t), t: t}
	change := func(request string) {
		t.Helper()
		command := p.Command(request, true)
		a, err := p.make(command)
		if err == nil {
			err = p.settle(command, a.Version, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		p.End(request, command)
	}
	name := func(ref string) {
		storetest.Exec(t, p.Store,
			`UPDATE machines SET spec = spec || '{"bmc_credentials_ref": "`+ref+`"}' WHERE machine_id = 'm-1'`)
	}
	change("one")
	name("spare")
	if c := p.inUse("spare"); c.OwnOf != "" || string(c.Sealed) != "sealed" {
		t.Errorf("with others: %+v", c)
	}
	name("rack")
	if c := p.inUse("rack"); c.OwnOf != "m-1" {
		t.Errorf("with the same again: %+v", c)
	}
	name("spare")
	change("two") // the BMC takes this one now, whichever credentials are named
	name("rack")
	if c := p.inUse("rack"); c.OwnOf != "" {
		t.Errorf("after a change under others: %+v", c)
	}
}

// TestWhoseCommandAPasswordIsFor: nobody else makes or settles it.
func TestWhoseCommandAPasswordIsFor(t *testing.T) {
	t.Parallel()
	p := &passwords{PasswordRig: storetest.NewPasswordRig(t), t: t}
	command := p.Command("one", true)
	other := storetest.Enrol(t, p.Store, agentstore.NewToken{TokenID: "t-other", Role: "site", Site: "elsewhere"})
	p.Site, other = other, p.Site
	_, err := p.make(command)
	storetest.WantReason(t, err, "COMMAND_NOT_FOUND")
	storetest.WantReason(t, p.settle(command, 1<<32, true), "COMMAND_NOT_FOUND")
	p.Site = other
	storetest.Exec(t, p.Store,
		`UPDATE machines SET spec = spec || '{"bmc_endpoint": "10.0.0.8"}' WHERE machine_id = 'm-1'`)
	_, err = p.make(command)
	storetest.WantReason(t, err, "EXECUTION_FAILED")
	if _, err := p.Store.Machines.Register(t.Context(), &pb.Machine{MachineId: "m-2", Spec: &pb.MachineSpec{Site: "lab",
		BmcEndpoint: "redfish://10.0.0.8/redfish/v1/Systems/2", BmcCredentialsRef: "rack"}}, "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	_, _, err = p.Store.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-2", RequestID: "shared",
		Type: fleet.RunPlan, PlanID: "bmc-rotate-password", Actor: "tester"}, storetest.Now())
	storetest.WantReason(t, err, "BMC_SHARED")
}
