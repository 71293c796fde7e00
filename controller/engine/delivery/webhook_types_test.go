package delivery_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestEveryTypeOfEventArrives: whatever can be subscribed to happens in the life of machines and rollouts, and is told.
func TestEveryTypeOfEventArrives(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rec := newReceiver(t, nil)
	r.subscribe(rec.URL)
	r.run()
	ctx := t.Context()
	r.register("m-1", nil)
	r.over(r.maintain("m-1"))
	_, err := r.e.Requests.TransitionNode(ctx, nodestore.TransitionRequest{MachineID: "m-1", RequestID: "out",
		To: node.Retired, Actor: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Nodes.Delete(ctx, "m-1", "tester", true, time.Now()); err != nil {
		t.Fatal(err)
	}
	r.register("m-2", nil)
	r.over(r.maintain("m-2"))
	for _, end := range []func(id string) error{
		func(id string) error { _, err := r.e.Requests.Cancel(ctx, id, "tester"); return err },
		// Nobody is there to take the command: it fails when its time is up.
		func(id string) error {
			_, err := r.store.Operations.Decide(ctx, id, operation.Evaluate{}, time.Now().Add(24*time.Hour))
			return err
		},
	} {
		id := r.reboot("m-2")
		testkit.Eventually(t, patience, func() bool {
			op, err := r.store.OperationQueries.GetOperation(ctx, id)
			return err == nil && op.GetStartedAt() != nil
		}, "the reboot does not begin")
		if err := end(id); err != nil {
			t.Fatal(err)
		}
		r.over(id)
	}
	r.rollouts()
	r.silentSite()
	testkit.Eventually(t, patience, func() bool {
		have := rec.kinds(t)
		for _, kind := range webhook.Types() {
			if have[kind] == 0 {
				return false
			}
		}
		return true
	}, "not every type has come: %v", rec.kinds(t))
}

// silentSite ends the session of a site's only agent, and opens another one after the site has fallen silent.
func (r *rig) silentSite() {
	r.t.Helper()
	agent := storetest.Enrol(r.t, r.store, agentstore.NewToken{TokenID: "t-site", Role: "site", Site: "default"})
	storetest.Lease(r.t, r.store)
	first := agent.Hello("st-site", "boot-site")
	storetest.Open(r.t, r.store, first)
	if err := r.store.Sessions.EndSession(r.t.Context(), agent.ID, first.SessionID, time.Now()); err != nil {
		r.t.Fatal(err)
	}
	judge := func(now time.Time) {
		if err := r.store.Sites.UpdateSites(r.t.Context(), now.Add(-time.Hour), now); err != nil {
			r.t.Fatal(err)
		}
	}
	judge(time.Now().Add(time.Minute))
	second := agent.Hello("st-site", "boot-site")
	second.SessionID = "s-second"
	storetest.Open(r.t, r.store, second)
	judge(time.Now())
}

// reboot starts a reboot of a machine without an agent.
func (r *rig) reboot(id string) string {
	r.t.Helper()
	op, err := r.e.Requests.Start(r.t.Context(), operationstore.StartRequest{MachineID: id, RequestID: ids.New("r"),
		Type: fleet.Reboot, Actor: "tester"})
	if err != nil {
		r.t.Fatalf("start: %v", err)
	}
	return op.GetOperationId()
}

// over waits for the end of an operation, whatever it is.
func (r *rig) over(id string) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, func() bool {
		op, err := r.store.OperationQueries.GetOperation(r.t.Context(), id)
		return err == nil && op.GetFinishedAt() != nil
	}, "operation %s does not end", id)
}
