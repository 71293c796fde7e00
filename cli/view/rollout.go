package view

import (
	"fmt"
	"strconv"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// RolloutEnded reports whether nothing happens to the rollout any more.
func RolloutEnded(r *pb.Rollout) bool {
	switch r.GetState() {
	case pb.Rollout_SUCCEEDED, pb.Rollout_COMPLETED_WITH_FAILURES, pb.Rollout_FAILED, pb.Rollout_CANCELED:
		return true
	}
	return false
}

func (s Style) rolloutState(r *pb.Rollout) string {
	name := r.GetState().String()
	switch r.GetState() {
	case pb.Rollout_SUCCEEDED:
		return s.Good(name)
	case pb.Rollout_FAILED, pb.Rollout_CANCELED:
		return s.Bad(name)
	case pb.Rollout_PAUSED, pb.Rollout_STOPPING, pb.Rollout_AWAITING_APPROVAL, pb.Rollout_COMPLETED_WITH_FAILURES:
		return s.Warn(name)
	}
	return name
}

func rolloutWork(spec *pb.RolloutSpec) string {
	if spec.GetAction() != pb.RolloutSpec_ACTION_UNSPECIFIED {
		return strings.TrimSpace(spec.GetAction().String() + " " + spec.GetParams()["image_ref"])
	}
	return strings.TrimSpace(spec.GetType() + " " + spec.GetPlanId())
}

// Rollouts are the columns of rollouts.
func (s Style) Rollouts(r *pb.Rollout) (cells, wide []Cell) {
	y := r.GetTally()
	return []Cell{
		{"ROLLOUT_ID", r.GetRolloutId()}, {"STATE", s.rolloutState(r)}, {"WAITS_FOR", r.GetWaitReason()},
		{"WORK", Clean(rolloutWork(r.GetSpec()))}, {"WAVE", fmt.Sprintf("%d/%d", r.GetWave(), len(r.GetWaves()))},
		{"DONE", number(y.GetDone())}, {"FAILED", number(y.GetFailed())}, {"LEFT", number(y.GetLeft())},
		{"MACHINES", number(y.GetMachines())}, {"AGE", Age(r.GetCreatedAt(), s.Now)},
		{"TITLE", Clean(r.GetSpec().GetTitle())},
	}, nil
}

func number(n int32) string { return strconv.Itoa(int(n)) }

// Rollout is one rollout on a page.
func (s Style) Rollout(r *pb.Rollout) string {
	f := &Fields{}
	f.Add("Rollout", r.GetRolloutId())
	f.Add("Title", Clean(r.GetSpec().GetTitle()))
	f.Add("Work", Clean(rolloutWork(r.GetSpec())))
	f.Add("Machines", Clean(fallback(r.GetSpec().GetFilter(), r.GetSpec().GetSelectionId())))
	state := s.rolloutState(r)
	if r.GetWaitReason() != "" {
		state += " (" + r.GetWaitReason() + ")"
	}
	f.Add("State", state)
	f.Add("Message", Clean(r.GetMessage()))
	f.Add("Created", Age(r.GetCreatedAt(), s.Now)+" ago by "+Clean(r.GetCreatedBy()))
	if r.GetApprovedBy() != "" {
		f.Add("Approved", Age(r.GetApprovedAt(), s.Now)+" ago by "+Clean(r.GetApprovedBy()))
	}
	f.Add("Digest", r.GetDigest())
	if r.GetDestructive() {
		f.Add("Destructive", s.Warn("yes: data on the machines is lost"))
	}
	out := f.String() + "\n" + s.waves(r).String()
	if refused := refusedAtFirst(r); refused > 0 {
		out += fmt.Sprintf("Refused from the beginning: %d   To see them: ingot rollout machines %s --filter state=SKIPPED\n",
			refused, r.GetRolloutId())
	}
	return out + rolloutHint(r)
}

// refusedAtFirst are the machines that belong to no wave.
func refusedAtFirst(r *pb.Rollout) int32 {
	n := r.GetTally().GetMachines()
	for _, w := range r.GetWaves() {
		n -= w.GetTally().GetMachines()
	}
	return n
}

func rolloutHint(r *pb.Rollout) string {
	switch r.GetState() {
	case pb.Rollout_AWAITING_APPROVAL:
		return "Another administrator: ingot rollout approve " + r.GetRolloutId() + " --digest " + r.GetDigest() + "\n"
	case pb.Rollout_PAUSED:
		return "To go on: ingot rollout resume " + r.GetRolloutId() + "   To end it: ingot rollout cancel " +
			r.GetRolloutId() + "\n"
	}
	return ""
}

func (s Style) waves(r *pb.Rollout) *Table {
	t := &Table{Header: []string{"WAVE", "PROGRESS", "MACHINES", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "SKIPPED",
		"CANCELED"}}
	for _, w := range r.GetWaves() {
		y := w.GetTally()
		failed := number(y.GetFailed())
		if y.GetFailed() > 0 {
			failed = s.Bad(failed)
		}
		t.Add(number(w.GetWave()), waveBar(y), number(y.GetMachines()), number(y.GetPending()), number(y.GetRunning()),
			number(y.GetSucceeded()),
			failed, number(y.GetSkipped()), number(y.GetCanceled()))
	}
	return t
}

func waveBar(t *pb.RolloutTally) string {
	const columns = 20
	if t.GetMachines() == 0 {
		return Bar(0, columns)
	}
	return Bar(int((t.GetMachines()-t.GetLeft())*100/t.GetMachines()), columns)
}

// RolloutMachines are the machines of a rollout.
func (s Style) RolloutMachines(m *pb.RolloutMachine) (cells, wide []Cell) {
	state := m.GetState().String()
	switch m.GetState() {
	case pb.RolloutMachine_SUCCEEDED:
		state = s.Good(state)
	case pb.RolloutMachine_FAILED:
		state = s.Bad(state)
	case pb.RolloutMachine_SKIPPED, pb.RolloutMachine_CANCELED:
		state = s.Warn(state)
	}
	wave := ""
	if m.GetWave() > 0 {
		wave = number(m.GetWave())
	}
	return []Cell{
		{"MACHINE_ID", m.GetMachineId()}, {"WAVE", wave}, {"DOMAIN", Clean(m.GetDomain())}, {"STATE", state},
		{"OPERATION_ID", m.GetOperationId()}, {"REASON", m.GetReason()},
	}, nil
}
