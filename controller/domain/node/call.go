package node

import (
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Refused returns a refusal that names the machine and its state.
func Refused(machineID, state string, r *fleet.Refusal) error {
	return r.Failure().WithMeta("machine_id", machineID).WithMeta("node_state", state)
}

// Call is an admin's call to move a node.
type Call struct {
	MachineID string
	// State is the node's state as it is stored.
	State string
	To    State
	Facts Facts
	// ActiveOperation is empty where none is active. Facts leave it out where the call cancels it first.
	ActiveOperation string
}

// Course is how a call moves a node.
type Course uint8

// The courses.
const (
	// Recorded: the move ends in the transaction of its request.
	Recorded Course = iota
	// Worked: an operation or a workflow owns the node in the new state.
	Worked
	// RetiresBusy and QuarantinesBusy cancel the active operation.
	RetiresBusy
	QuarantinesBusy
)

// Decide returns the course of the call, or why the node is not moved.
func (c Call) Decide() (Course, error) {
	row, refusal := Check(Parse(c.State), c.To, Admin, c.Facts)
	switch {
	case refusal != nil:
		return 0, Refused(c.MachineID, c.State, refusal)
	case c.ActiveOperation != "" && c.To == Retired:
		return RetiresBusy, nil
	case c.ActiveOperation != "" && c.To == Quarantined:
		return QuarantinesBusy, nil
	case c.ActiveOperation != "":
		return 0, failure.Precondition("MACHINE_BUSY",
			"operation %s is active on the machine; wait for it or cancel it first", c.ActiveOperation).
			WithMeta("machine_id", c.MachineID).WithMeta("active_operation_id", c.ActiveOperation)
	case row.Work:
		return Worked, nil
	}
	return Recorded, nil
}

// Work is the work that a state stands for.
type Work struct {
	Type fleet.OperationType
	// Plan is empty where the machine's own one is run.
	Plan string
}

// DrainPlan is the plan of a drain that an admin's move starts.
const DrainPlan = "drain"

// works are the works of admin's moves.
var works = map[State]Work{
	Reprovision:    {Type: fleet.Reimage},
	Deprovisioning: {Type: fleet.RunPlan, Plan: "erase"},
	Migrating:      {Type: fleet.RMAType, Plan: "replace"},
	Draining:       {Type: fleet.RunPlan, Plan: DrainPlan},
}

// WorkOf returns the work that an admin's move to a state starts, and reports whether there is any.
func WorkOf(to State) (Work, bool) {
	w, ok := works[to]
	return w, ok
}

// MayStart returns the work that an admin's call starts in a state: a node that is installing already begins it again.
// States whose work belongs to workflows alone are refused.
func MayStart(machineID string, to State) (Work, error) {
	w, ok := works[to]
	if to == Installing {
		w, ok = works[Reprovision], true
	}
	if !ok {
		return w, failure.Precondition("NODE_GUARD_FAILED", "a decommission workflow moves a node to %s", Name(to)).
			WithMeta("machine_id", machineID)
	}
	return w, nil
}

// MayRepeat refuses to quarantine a quarantined node, unless the same request has done it before, together with the
// operation that it has cancelled.
func MayRepeat(machineID, state, cancelled string) error {
	if cancelled == "" {
		return failure.Precondition("NODE_TRANSITION_ILLEGAL", "the node is quarantined already").
			WithMeta("machine_id", machineID).WithMeta("node_state", state)
	}
	return nil
}

// MayDelete refuses to delete the record of a machine with which something goes on.
func MayDelete(activeOperation, unresolvedCommand string) error {
	switch {
	case activeOperation != "":
		return failure.Precondition("MACHINE_BUSY", "operation %s is active; cancel it first", activeOperation)
	case unresolvedCommand != "":
		return failure.Precondition("COMMAND_UNRESOLVED", "command %s may still be acting; settle it first",
			unresolvedCommand)
	}
	return nil
}

// Discovery is the approval of a machine that a site's agent has seen.
type Discovery struct {
	Site, MAC, MachineID string
	// Seen reports whether the site's agent has; Taken, whether another machine has the id that the admin gives it.
	Seen, Taken bool
}

// Refuse returns why the machine is not registered; nil if it is.
func (d Discovery) Refuse() error {
	switch {
	case !d.Seen:
		return failure.NotFound("DISCOVERY_NOT_FOUND",
			"no machine with MAC address %s has asked to boot at site %s; see `ingot site discovered`", d.MAC, d.Site).
			WithField("mac_address", "not among the discovered machines of the site")
	case d.Taken:
		return failure.Precondition("NODE_GUARD_FAILED",
			"machine %s is registered already; give its MAC address to it, or choose another id", d.MachineID).
			WithField("machine_id", "taken by another machine")
	}
	return nil
}

// Reported is a report by an installer, with what decides about it.
type Reported struct {
	MachineID, State string
	Report           Report
	Install          Install
	// ActiveOperation is empty where none is active. Waits reports whether it waits for reports.
	ActiveOperation string
	Waits           bool
	// Blocked reports whether nothing may run on the machine.
	Blocked bool
}

// Taken is what a report is taken for.
type Taken uint8

// A report is shown alone, is an event of the operation that waits for it, or begins such an operation.
const (
	Shown Taken = iota
	Awaited
	Begins
)

// Take returns what the report is taken for. An installation that another operation makes is judged by that operation's
// evidence: a foreign report may show its progress and decides nothing.
func (r Reported) Take() (Taken, error) {
	_, refusal := Decide(r.Install, r.Report)
	switch {
	case refusal != nil:
		return 0, Refused(r.MachineID, r.State, refusal)
	case r.ActiveOperation != "" && r.Waits:
		return Awaited, nil
	case r.ActiveOperation != "" && r.Report.Status == Progress:
		return Shown, nil
	case r.ActiveOperation != "":
		return 0, failure.Precondition("REPORT_REFUSED",
			"operation %s is active on the machine and decides by its own evidence", r.ActiveOperation).
			WithMeta("machine_id", r.MachineID).WithMeta("active_operation_id", r.ActiveOperation)
	case r.Blocked:
		return 0, failure.Precondition("MACHINE_BLOCKED",
			"machine %s is flagged RMA or Retired; nothing may be installed on it", r.MachineID).
			WithMeta("machine_id", r.MachineID)
	}
	return Begins, nil
}

// MayAdopt refuses to accept the state at a provider that was never asked about the machine.
func MayAdopt(machineID string, observed bool) error {
	if observed {
		return nil
	}
	return failure.Precondition("NODE_GUARD_FAILED", "nothing is known of what a provider says of machine %s", machineID).
		WithField("adopt_provider_state", "only for machines of provider maas that the site's agent has asked about")
}

// cancelledIntoService are states of work from which a cancel may put a node back into service. There, it is not
// retired without a decommission.
var cancelledIntoService = []State{Migrating, Deprovisioning, Draining}

// CancelledIntoService reports whether a cancel of a node's work may put the node back into service.
func CancelledIntoService(s State) bool { return slices.Contains(cancelledIntoService, s) }
