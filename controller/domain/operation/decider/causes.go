package decider

import (
	"cmp"
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// raise adds what the failure of the operation leaves for a person: the unknown outcome of its command, or else the
// cause that failed operations of its type leave.
func (d *decider) raise() {
	r := &operation.RaisedCause{
		Cause: fleet.CauseOf(d.op.Type), Subject: subject(d.op), Reason: d.op.Error.Code, Message: d.op.Error.Message,
	}
	if d.cmd != nil && d.cmd.State == operation.Unknown {
		r.Cause, r.Subject = fleet.CauseUnknown, d.cmd.ID
	}
	d.out.Machine.Raise = r
}

// unreached are the reasons of a site's agent that has not reached a machine. Work that failed for another reason, or
// whose outcome is unknown, shows nothing of that.
var unreached = []string{"BMC_UNREACHABLE", "SSH_UNREACHABLE"}

// reachedBySite keeps the condition Reachable of a machine that has no agent of its own: the work of its site's agent
// is the only probe of it. An empty code is a success.
func (d *decider) reachedBySite(code string) {
	if d.w.TargetAgentID != "" || fleet.Housekeeping(d.op.Type) || d.cmd == nil || d.cmd.ExecutorRole != "site" {
		return
	}
	if code == "" || slices.Contains(unreached, code) {
		d.condition(fleet.Reachable, code == "", cmp.Or(code, "SiteAgent"), "")
	}
}

// cure takes causes away.
func (d *decider) cure(h fleet.Happened) { d.out.Machine.Happened = h }

// subject tells failed plans apart: another plan that succeeds proves nothing about the one that failed.
func subject(op operation.Operation) string {
	if fleet.CauseOf(op.Type) == fleet.CausePlan {
		return op.PlanID
	}
	return ""
}

// proven returns what the success of an operation proves. Operations that only change the record prove nothing.
func proven(op operation.Operation) fleet.Happened {
	if fleet.Housekeeping(op.Type) {
		return fleet.Happened{}
	}
	h := fleet.Happened{
		Cures: []fleet.Cure{fleet.CuredBySame, fleet.CuredByWork}, Same: fleet.CauseOf(op.Type), Subject: subject(op),
	}
	for _, p := range []struct {
		cure  fleet.Cure
		shown bool
	}{
		{fleet.CuredByImage, op.Evidence[evidence.ImageDigest] != "" || op.Evidence[evidence.Deployed] != ""},
		{fleet.CuredByBoot, op.Evidence[evidence.BootIDAfter] != "" ||
			op.Evidence[evidence.PhonedHomeAt] != "" || op.Evidence[evidence.ProbeAnsweredAt] != ""},
		{fleet.CuredByJoin, op.Evidence[evidence.NodeReadyAt] != ""},
	} {
		if p.shown {
			h.Cures = append(h.Cures, p.cure)
		}
	}
	return h
}

// providerDestroys are the actions of a provider that destroy what is on the system disk.
var providerDestroys = []string{"deploy", "recover_deploy", "release", "erase"}

// destroysSystem reports whether a granted command of the step destroys data on the machine's system disk. An erasure
// counts whatever disks its rule names: which of them held the system is not known here.
func destroysSystem(k kind.Kind, s *operation.Step) bool {
	return kind.Of(k).DestroysSystem ||
		kind.Of(k).Route == kind.ThroughProvider && slices.Contains(providerDestroys, s.Mode)
}

// unprovision takes the claim away that a verified system is on the disk, with the grant that begins to destroy it.
// What was wrong with that system goes with it.
func (d *decider) unprovision() {
	if !destroysSystem(d.cmd.Kind, d.step()) {
		return
	}
	d.out.Machine.Unprovision = true
	for _, c := range []fleet.ConditionType{fleet.Provisioned, fleet.Degraded, fleet.RAIDDegraded} {
		d.condition(c, false, "DiskBeingWritten", "")
	}
}

// settledBy says that the command's outcome is unknown no longer.
func (d *decider) settledBy(commandID string) {
	d.cure(fleet.Happened{Cures: []fleet.Cure{fleet.CuredBySettlement}, Subject: commandID})
}
