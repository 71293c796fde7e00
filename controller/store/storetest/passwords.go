package storetest

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
)

// PasswordRig is a store with the machine m-1 of site lab, whose BMC's credentials are called rack, and others.
type PasswordRig struct {
	t     *testing.T
	Store *store.Store
	Site  Enrolled
	seq   uint64
	ops   map[string]string
	// commands by the operation's request.
	commands map[string]operation.Command
}

// NewPasswordRig returns one whose site agent has a session.
func NewPasswordRig(t *testing.T) *PasswordRig {
	t.Helper()
	r := &PasswordRig{t: t, Store: New(t), ops: map[string]string{}, commands: map[string]operation.Command{}}
	for _, ref := range []string{"rack", "spare"} {
		if _, err := r.Store.Credentials.SetCredentials(t.Context(), credential.Change{Ref: ref,
			Sealed: []byte("sealed"), Allowed: []string{"10.0.0.0/24"}}, "tester", Now()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Store.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: "m-1",
		Spec: &baremetalv1.MachineSpec{Site: "lab", BmcEndpoint: "10.0.0.7", BmcCredentialsRef: "rack"}}, "tester",
		Now()); err != nil {
		t.Fatal(err)
	}
	Lease(t, r.Store)
	r.Site = Enrol(t, r.Store, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "lab"})
	h := r.Site.Hello("st-1", "b-1")
	h.Capabilities = []string{fleet.ChangesBMCPasswords, "provider:agent", "power"}
	Open(t, r.Store, h)
	return r
}

// Command starts the change of a request, and grants its command where that is asked for.
func (r *PasswordRig) Command(request string, granted bool) string {
	r.t.Helper()
	c, there := r.commands[request]
	if !there {
		id := Start(r.t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: request, Type: fleet.RunPlan,
			PlanID: "bmc-rotate-password"}).GetOperationId()
		c = *Decide(r.t, r.Store, id, operation.Evaluate{}).Command
		r.ops[request], r.commands[request] = id, c
	}
	if granted {
		r.seq++
		Grant(r.t, r.Store, r.ops[request], c, "st-1", r.seq)
	}
	return c.ID
}

// End has the operation of a request fail.
func (r *PasswordRig) End(request, command string) {
	r.t.Helper()
	Decide(r.t, r.Store, r.ops[request], operation.Resulted{AgentID: r.Site.ID, CommandID: command,
		Outcome: operation.OutcomeFailed, Reason: "BMC_UNREACHABLE"})
}
