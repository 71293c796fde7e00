//go:build metal

package lab_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestLifeLeavingKilled: a machine is wiped and installed anew, and then removed. At every stage of both, controller
// and site agent are killed, and the machine itself is reset in the middle of its erasure. Both end in the state of
// their mode.
func TestLifeLeavingKilled(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish})
	s.installs(m, "first")
	s.run("node", "transition", m.Name(), "active")
	first := s.leavesKilled(m, pb.Workflow_STORAGE_CLEANUP)
	s.holdsNode(m.Name(), pb.NodeState_NODE_STATE_ACTIVE)
	second := s.leavesKilled(m, pb.Workflow_FULL_DECOMMISSION)
	s.holdsGone(m, m.Name())
	if !first && !second {
		t.Error("no erasure was under way long enough to be cut")
	}
}

// leavesKilled kills something whenever the workflow has come to another stage, or its attempt to another command. It
// reports whether the machine was reset in the middle of its erasure.
func (s *site) leavesKilled(m *metal.Machine, mode pb.Workflow_Mode) (reset bool) {
	s.Helper()
	began := time.Now()
	s.startsLeaving(m, mode)
	k := &killer{site: s, m: m}
	var w *pb.Workflow
	for {
		w = s.workflowWhich(m, "ends", func(now *pb.Workflow) bool {
			k.look(now)
			return now.GetEndedAt() != nil || stuckWorkflow(now)
		})
		if w.GetEndedAt() != nil || k.resumes == 3 {
			break
		}
		k.resume(w)
	}
	s.Logf("%s: %s after %.1f s; killed at %v; %d resumes", mode, w.GetState(), time.Since(began).Seconds(), k.kills,
		k.resumes)
	if w.GetState() != pb.Workflow_COMPLETED || w.GetMode() != mode {
		s.Fatalf("the workflow ended as %v", w)
	}
	if len(k.kills) < 4 {
		s.Errorf("only %d kills", len(k.kills))
	}
	return k.reset
}

func (s *site) startsLeaving(m *metal.Machine, mode pb.Workflow_Mode) {
	s.Helper()
	_, err := s.api.Workflows.StartWorkflow(s.ctx, &pb.StartWorkflowRequest{
		MachineId: m.Name(), RequestId: mode.String(), Kind: pb.Workflow_DECOMMISSION, Mode: mode, EnterMaintenance: true,
		Params: map[string]string{"image_ref": metal.TinyRef},
	})
	if err != nil {
		s.Fatal(err)
	}
}

// workflowWhich waits until the machine's newest is so. A controller that is away is asked again.
func (s *site) workflowWhich(m *metal.Machine, what string, so func(*pb.Workflow) bool) (w *pb.Workflow) {
	s.Helper()
	testkit.Eventually(s.T, 2*cycle, func() bool {
		w = s.workflowOf(m.Name())
		return w != nil && so(w)
	}, "no workflow of %s %s", m.Name(), what)
	return w
}

func stuckWorkflow(w *pb.Workflow) bool {
	return w.GetState() == pb.Workflow_FAILED_RETRYABLE || w.GetState() == pb.Workflow_FAILED_MANUAL_INTERVENTION
}

// killer kills controller and site agent in turn.
type killer struct {
	*site
	m       *metal.Machine
	seen    string
	reset   bool
	kills   []string
	resumes int
}

func (k *killer) look(w *pb.Workflow) {
	k.Helper()
	list, err := k.api.Admin.ListCommands(k.ctx, &pb.ListCommandsRequest{OperationId: w.GetOperationId()})
	if err != nil || w.GetEndedAt() != nil {
		return
	}
	at := w.GetCurrentStage()
	if all := list.GetCommands(); len(all) > 0 {
		last := all[0]
		at = fmt.Sprintf("%s/%s %s", at, last.GetKind(), last.GetState())
		if k.cut(last, at) || w.GetCurrentStage() == "cleanup_storage" && last.GetFinishedAt() != nil {
			return // what comes next is the erasure, which does not take long
		}
	}
	if at == k.seen {
		return
	}
	k.seen = at
	if len(k.kills)%2 == 0 {
		k.kills = append(k.kills, "controller: "+at)
		k.must(errors.Join(k.lab.KillController(), k.lab.StartController(k.ctx)))
		return
	}
	k.kills = append(k.kills, "site agent: "+at)
	k.must(errors.Join(k.lab.KillSite(), k.lab.StartSite(k.ctx)))
}

// cut resets the machine once, while it is being erased. The agent on it dies with it; the installer comes again.
func (k *killer) cut(last *pb.Command, at string) bool {
	k.Helper()
	if last.GetKind() != "erase" || last.GetFinishedAt() != nil || k.reset {
		return false
	}
	k.reset = true
	k.kills = append(k.kills, "the machine: "+at)
	k.must(k.m.Reset(k.ctx))
	return true
}

func (k *killer) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

// resume presses ten times at once; one attempt is made.
func (k *killer) resume(w *pb.Workflow) {
	k.Helper()
	k.Logf("%s (%s) at %s: %s", w.GetState(), w.GetReason(), w.GetCurrentStage(), w.GetMessage())
	k.resumes++
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := map[string]bool{}
	for i := range 10 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			op, err := k.api.Workflows.ActOnWorkflow(k.ctx, &pb.ActOnWorkflowRequest{
				WorkflowId: w.GetWorkflowId(), RequestId: fmt.Sprintf("resume-%d-%d", k.resumes, i),
				Action: pb.WorkflowAction_WORKFLOW_ACTION_RESUME,
			})
			if err != nil {
				k.Errorf("resume: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			made[op.GetOperationId()] = true
		}()
	}
	wg.Wait()
	if len(made) != 1 {
		k.Errorf("resume, pressed ten times, made %v", made)
	}
}

// TestLifeResumed: a machine is off, and the password of its BMC was changed elsewhere. It cannot be wiped and
// installed anew, and nothing of it is touched. Once the new password is known, resume does it, with the image that was
// asked for at first.
func TestLifeResumed(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish})
	s.installs(m, "first")
	s.run("node", "transition", m.Name(), "active")
	s.power(m, bmc.ForceOff)
	const changed = "changed-meanwhile"
	m.Redfish.SetPassword(changed)
	m.Redfish.ForgetSessions()
	before := m.PowerOns()
	s.startsLeaving(m, pb.Workflow_STORAGE_CLEANUP)
	w := s.workflowWhich(m, "waits for a person", stuckWorkflow)
	if w.GetReason() != "BMC_AUTH_FAILED" || m.PowerOns() != before {
		t.Errorf("with a password that nobody knows: %s (%s), and %d power-ons", w.GetReason(), w.GetMessage(),
			m.PowerOns()-before)
	}
	s.credentials(changed)
	(&killer{site: s, m: m}).resume(w)
	stuck := w.GetOperationId()
	w = s.workflowWhich(m, "ends", func(w *pb.Workflow) bool {
		return w.GetEndedAt() != nil || w.GetOperationId() != stuck && stuckWorkflow(w)
	})
	if w.GetState() != pb.Workflow_COMPLETED {
		t.Fatalf("resumed, the workflow ended as %v", w)
	}
	s.holdsInstalled(m, s.operationOf(w))
	s.holdsNode(m.Name(), pb.NodeState_NODE_STATE_ACTIVE)
}
