package previews_test

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// drive lets the engine and the agents work on an operation, each agent succeeding with all that it is asked, until it
// ends, waits, or the agents have begun what no simulation finishes. failing is which of the answers is a failure; 0 is
// none.
func (w *world) drive(id string, failing int) *pb.Operation {
	w.T.Helper()
	answers := 0
	for range 40 {
		if _, _, err := w.Store.Budgets.AdmitDestructive(w.T.Context(), storetest.Now()); err != nil {
			w.T.Fatal(err)
		}
		storetest.Decide(w.T, w.Store, id, operation.Evaluate{})
		w.applied()
		op, err := w.Store.OperationQueries.GetOperation(w.T.Context(), id)
		if err != nil {
			w.T.Fatal(err)
		}
		if op.GetFinishedAt() != nil {
			return op
		}
		a, spec := w.waiting(id)
		if spec == nil {
			if op.GetWaitReason() == operation.WaitRetry {
				return op
			}
			if !w.moved(op) {
				return op
			}
			continue
		}
		answers++
		if !w.answer(a, id, spec, answers == failing) {
			return op
		}
	}
	w.T.Fatalf("operation %s does not end", id)
	return nil
}

// moved reports whether another look changes the operation: a site has taken over what it waited for.
func (w *world) moved(op *pb.Operation) bool {
	storetest.Decide(w.T, w.Store, op.GetOperationId(), operation.Evaluate{})
	now, err := w.Store.OperationQueries.GetOperation(w.T.Context(), op.GetOperationId())
	_, spec := w.waiting(op.GetOperationId())
	return err == nil && (spec != nil || now.GetPhase() != op.GetPhase() || now.GetWaitReason() != op.GetWaitReason() ||
		now.GetCurrentStage() != op.GetCurrentStage())
}

// applied lets every connected site agent serve by the newest document of its site.
func (w *world) applied() {
	w.T.Helper()
	for _, a := range w.agents {
		if a.site == "" || a.epoch == 0 {
			continue
		}
		d, err := w.Store.Sites.SiteDocument(w.T.Context(), a.site)
		if err != nil {
			w.T.Fatal(err)
		}
		if _, err := w.Store.Sites.RecordSite(w.T.Context(), sitestore.SiteReport{Site: a.site, AgentID: a.ID,
			Applied: d.GetRevision(), BootAddresses: map[string]string{"seg": "10.20.0.1:8080"}, LeasesSame: true,
		}, storetest.Now()); err != nil {
			w.T.Fatal(err)
		}
	}
}

// waiting returns the command of the operation that an agent has been sent, nil if there is none.
func (w *world) waiting(id string) (*simAgent, *sent) {
	w.T.Helper()
	for _, a := range w.agents {
		if a.epoch == 0 {
			continue
		}
		out, err := w.Store.Sessions.Unsettled(w.T.Context(), a.ID)
		if err != nil {
			w.T.Fatal(err)
		}
		for _, c := range out {
			spec := &fleetv1.CommandSpec{}
			if err := proto.Unmarshal(c.Spec, spec); err != nil {
				w.T.Fatal(err)
			}
			if spec.GetOperationId() == id {
				return a, &sent{spec, c.Digest}
			}
		}
	}
	return nil, nil
}

// sent is a command on its way to an agent.
type sent struct {
	*fleetv1.CommandSpec
	digest []byte
}

// answer lets the agent ask for its grant, act and answer. It returns false where the simulation ends.
func (w *world) answer(a *simAgent, id string, c *sent, fails bool) bool {
	w.T.Helper()
	if c.GetNeedsGrant() {
		a.seq++
		d := storetest.Decide(w.T, w.Store, id, operation.GrantAsked{CommandID: c.GetCommandId(), AgentID: a.ID,
			StateID: a.state, BootID: a.boot, Seq: a.seq, Digest: c.digest, Epoch: a.epoch,
			Earlier: storetest.AsksBefore(a.seq)})
		if r := d.Decision.Refusal; r != nil && r.Reason == "CANCELED_BY_REQUEST" {
			return false // the call was a cancel
		}
		if !d.Decision.Grant {
			w.T.Errorf("the grant of %T is refused: %+v", c.GetAction(), d.Decision.Refusal)
			return false
		}
	}
	result := operation.Resulted{CommandID: c.GetCommandId(), AgentID: a.ID, StateID: a.state,
		Outcome: operation.OutcomeSucceeded, Evidence: readBack(c.CommandSpec)}
	_, netboot := c.GetAction().(*fleetv1.CommandSpec_Netboot)
	switch {
	case fails:
		result.Outcome, result.Reason, result.Message = operation.OutcomeFailed, "EXECUTION_FAILED", "as drawn"
	case !netboot && !a.simulated && c.GetProviderAction() == nil:
		return false
	}
	if _, reboots := c.GetAction().(*fleetv1.CommandSpec_Reboot); reboots && !fails {
		a.boot = fmt.Sprintf("%s-%d", a.boot, a.seq)
		w.connect(a)
		result.SessionBootID = a.boot
	}
	storetest.Decide(w.T, w.Store, id, result)
	return true
}

// readBack is what a healthy agent reads back after a command.
func readBack(c *fleetv1.CommandSpec) map[string]string {
	switch c.GetAction().(type) {
	case *fleetv1.CommandSpec_Netboot:
		return map[string]string{evidence.BootNext: "pxe"}
	case *fleetv1.CommandSpec_Erase:
		return map[string]string{evidence.EraseMethod: "nvme-sanitize"}
	case *fleetv1.CommandSpec_Repave:
		return map[string]string{evidence.ImageDigest: "sha256:dd"}
	case *fleetv1.CommandSpec_ResetDevices:
		return map[string]string{evidence.DevicesReset: "0000:17:00.0 flr"}
	case *fleetv1.CommandSpec_TestHardware:
		return map[string]string{evidence.HardwareTests: "cpu passed"}
	case *fleetv1.CommandSpec_Reconfig:
		return map[string]string{evidence.ConfigDigest: "sha256:cf"}
	case *fleetv1.CommandSpec_Join:
		return map[string]string{evidence.JoinedCluster: "known"}
	case *fleetv1.CommandSpec_ProviderAction:
		out := map[string]string{evidence.ProviderSaid: "as asked"}
		for _, s := range workflow.Catalogue() {
			if s.Gives != "" && slices.ContainsFunc(s.Steps, func(o workflow.StepOf) bool {
				return o.Kind == workflow.ProviderKind && o.Mode == c.GetProviderAction().GetAction()
			}) {
				out[s.Gives] = "true"
			}
		}
		return out
	}
	return nil
}
