package e2e

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/state"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestAnAgentThatLostItsMemoryBeforeTheGrant(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	rig.AtPoint(m, "agent.before-grant-request", nil)
	op := rig.Reboot(t, c.Client, m.ID, "r1", rig.PatientTime)
	if err := m.End(); err == nil {
		t.Fatal("the agent did not crash")
	}
	m.ForgetEverything()
	m.Start()
	// It had been sent and never granted, so that nothing can have happened: a new command for the new memory.
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	h := m.WaitQuiet(rig.Soon)
	rig.Clean(t, h)
	if len(h.Commands) < 2 || h.Commands[len(h.Commands)-2].GetState() != "CANCELED" {
		t.Errorf("want the first command canceled and a second one: %v", h)
	}
}

func TestAnAgentThatLostItsMemoryAfterTheGrant(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	for _, at := range []string{"agent.after-grant", "agent.after-intent"} {
		t.Run(at, func(t *testing.T) {
			m := c.NewMachine(t, harness.MachineOptions{})
			m.WaitConnected()
			rig.Maintenance(t, c.Client, m.ID)
			rig.AtPoint(m, at, nil)
			op := rig.Reboot(t, c.Client, m.ID, "r1", rig.PatientTime)
			if err := m.End(); err == nil {
				t.Fatal("the agent did not crash")
			}
			m.ForgetEverything()
			m.Start()
			rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Failed, "OUTCOME_UNKNOWN")
			h := m.WaitQuiet(rig.Soon)
			rig.Clean(t, h)
			if h.Machine.GetStatus().GetUnresolvedCommandId() == "" ||
				rig.Condition(h.Machine, "NeedsIntervention").GetStatus() != true {
				t.Errorf("want a fenced machine: %v", h)
			}
			if n := len(h.Journal); n != 0 {
				t.Errorf("%d records in the journal: the new memory must not have been sent the command", n)
			}
		})
	}
}

func TestAnAgentThatWasRolledBackToACopy(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	// The copy knows the command as received, and no grant.
	rig.AtPoint(m, "agent.before-grant-request", nil)
	first := rig.Reboot(t, c.Client, m.ID, "r1", rig.PatientTime)
	if err := m.End(); err == nil {
		t.Fatal("the agent did not crash")
	}
	copied := m.CopyMemory()
	m.Start()
	rig.Ended(t, c.Wait(first.GetOperationId(), rig.Soon), rig.Succeeded, "")
	done := m.WaitQuiet(rig.Soon)
	m.Restart(func() { m.RollBack(copied) })
	old := m.Identity()
	// It takes a new memory and reports that; nothing of the old one is done again.
	second := rig.Reboot(t, c.Client, m.ID, "r2", rig.PatientTime)
	rig.Ended(t, c.Wait(second.GetOperationId(), rig.Soon), rig.Succeeded, "")
	h := m.WaitQuiet(rig.Soon)
	rig.Clean(t, h)
	for _, p := range done.Changed(h) {
		t.Error(p)
	}
	a := harness.Must(t, c.Admin().GetAgent, &baremetalv1.GetAgentRequest{AgentId: old.AgentID})
	if a.GetStateId() == "" {
		t.Errorf("agent %v", a)
	}
}

// TestNoEventComesTwiceFromACopy, nor does one of the copy's own get lost because its original had used the number.
func TestNoEventComesTwiceFromACopy(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	op := rig.Reboot(t, c.Client, m.ID, "r1", rig.PatientTime)
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	cmd := m.WaitQuiet(rig.Soon).Commands[0]
	// buffer writes lines as an agent does that ends before they are sent; a start is that of one that has not had a
	// session.
	buffer := func(start bool, lines ...string) {
		s, err := state.Open(t.Context(), state.Config{Dir: m.StateDir})
		if err != nil {
			t.Fatal(err)
		}
		if start {
			if err := s.Doubt(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for _, l := range lines {
			e := &fleetv1.Event{Body: &fleetv1.Event_Log{Log: &fleetv1.LogLines{
				CommandId: cmd.GetCommandId(), OperationId: op.GetOperationId(), Stream: "agent", Data: []byte(l + "\n"),
			}}}
			if err := s.Append(t.Context(), e, time.Now()); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	logged := func() string {
		stream, err := c.Operations().StreamOperationLogs(t.Context(),
			&baremetalv1.StreamOperationLogsRequest{OperationId: op.GetOperationId()})
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for {
			chunk, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return all.String()
			}
			if err != nil {
				t.Fatal(err)
			}
			all.Write(chunk.GetData())
		}
	}
	var copied harness.Copy
	m.Restart(func() {
		buffer(false, "line of both")
		copied = m.CopyMemory()
		buffer(false, "line 1 of the original", "line 2 of the original", "line 3 of the original")
	})
	testkit.Eventually(t, rig.Soon, func() bool { return strings.Contains(logged(), "line 3") },
		"the lines of the original do not come")
	m.Restart(func() {
		m.RollBack(copied)
		// More than the original has sent since: its numbers alone would not show that it is a copy.
		buffer(true, "line of the copy", "2", "3", "4", "5", "6", "7", "8", "9", "last line of the copy")
	})
	testkit.Eventually(t, rig.Soon, func() bool { return strings.Contains(logged(), "last line of the copy") },
		"the lines of the copy do not come")
	got := logged()
	for _, line := range []string{"line of both", "line 1 of the original", "line 3 of the original", "\nline of the copy",
		"last line"} {
		if n := strings.Count(got, line); n != 1 {
			t.Errorf("%q is there %d times in:\n%s", line, n, got)
		}
	}
}

func TestARollBackWhileACommandIsGranted(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	// Long enough for the agent to come to the failpoint before the machine goes down.
	m := c.NewMachine(t, harness.MachineOptions{Delay: time.Second})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	rig.AtPoint(m, "agent.before-grant-request", nil)
	op := rig.Reboot(t, c.Client, m.ID, "r1", rig.PatientTime)
	_ = m.End()
	copied := m.CopyMemory()
	rig.AtPoint(m, "agent.after-effect", nil)
	m.Start()
	_ = m.End() // the reboot has been asked for, and only the memory that is lost now knows
	m.RollBack(copied)
	m.Start()
	got := c.Wait(op.GetOperationId(), rig.Soon)
	h := m.WaitQuiet(rig.Soon)
	rig.Clean(t, h)
	// A new boot may have proved the reboot before the copy was found out; else the outcome is unknown.
	codes := []string{"AGENT_STATE_ROLLED_BACK", "OUTCOME_UNKNOWN"}
	if got.GetPhase() != rig.Succeeded && !slices.Contains(codes, got.GetError().GetCode()) {
		t.Errorf("operation %v", got)
	}
	if flag := rig.Condition(h.Machine, "NeedsIntervention"); got.GetPhase() != rig.Succeeded && !flag.GetStatus() {
		t.Errorf("condition %v", flag)
	}
}

func TestAMachineThatLiesAboutItsReboot(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	for _, script := range []string{"reboot:lie", "reboot:never"} {
		for _, site := range []bool{false, true} {
			m := c.NewMachine(t, harness.MachineOptions{Script: script, Site: site})
			m.WaitConnected()
			rig.Maintenance(t, c.Client, m.ID)
			op := c.Wait(rig.Reboot(t, c.Client, m.ID, "r1", 2).GetOperationId(), rig.Soon)
			if op.GetPhase() != rig.Failed {
				t.Errorf("%s, site %v: operation is %v", script, site, op)
			}
			rig.Clean(t, m.WaitQuiet(rig.Soon))
		}
	}
}

func TestACancelRacesTheResult(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	seen := map[baremetalv1.Operation_Phase]int{}
	for i := range 12 {
		m := c.NewMachine(t, harness.MachineOptions{Delay: 30 * time.Millisecond})
		m.WaitConnected()
		rig.Maintenance(t, c.Client, m.ID)
		op := rig.Reboot(t, c.Client, m.ID, "r1", 4)
		<-time.After(time.Duration(i*8) * time.Millisecond)
		_, err := harness.Call(t, c.Machines().CancelOperation,
			&baremetalv1.CancelOperationRequest{OperationId: op.GetOperationId()})
		got := c.Wait(op.GetOperationId(), rig.Soon)
		if err != nil && !harness.HasReason(err, "OPERATION_FINISHED") && !harness.HasReason(err, "CANCEL_TOO_LATE") {
			t.Errorf("cancel: %v", err)
		}
		if err != nil && got.GetPhase() == rig.Canceled {
			t.Errorf("a refused cancel, and the operation is %v", got)
		}
		h := m.WaitQuiet(rig.Soon)
		rig.Clean(t, h)
		if got.GetPhase() == rig.Canceled && h.Machine.GetStatus().GetUnresolvedCommandId() == "" && len(h.Journal) != 0 {
			t.Errorf("canceled, not fenced, and the world was touched: %v", h)
		}
		seen[got.GetPhase()]++
	}
	t.Logf("outcomes: %v", seen)
}
