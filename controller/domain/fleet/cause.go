package fleet

import (
	"cmp"
	"slices"
)

// Cause is one reason for which a machine needs a person. A machine carries a set of them; its condition
// NeedsIntervention is true while one is left.
type Cause string

// The causes.
const (
	CauseQuarantine  Cause = "QUARANTINED"
	CauseUnknown     Cause = "OUTCOME_UNKNOWN"
	CauseMemory      Cause = "AGENT_MEMORY"
	CauseProvider    Cause = "PROVIDER_ERROR"
	CauseWorkflow    Cause = "WORKFLOW_FAILED"
	CauseReimage     Cause = "REIMAGE_FAILED"
	CauseUpgrade     Cause = "UPGRADE_FAILED"
	CauseJoin        Cause = "JOIN_FAILED"
	CauseReconfigure Cause = "RECONFIGURE_FAILED"
	CausePlan        Cause = "PLAN_FAILED"
	CauseRMA         Cause = "RMA_FAILED"
	CauseReboot      Cause = "REBOOT_FAILED"
	CauseNetboot     Cause = "NETBOOT_FAILED"
	CauseHardware    Cause = "HARDWARE_TEST_FAILED"
	CauseRecord      Cause = "RECORD_FAILED"
)

// Cure is something that happened and takes causes away.
type Cure string

// The cures.
const (
	// CuredByAdmin: an admin cleared the machine. It cures everything.
	CuredByAdmin Cure = "admin"
	// CuredByImage: a system was written and verified, or the provider deployed one.
	CuredByImage Cure = "image"
	// CuredByBoot: the machine was proven to have booted the system that it was to boot.
	CuredByBoot Cure = "boot"
	// CuredByJoin: the machine's Node was seen ready in its cluster.
	CuredByJoin Cure = "join"
	// CuredBySame: an operation of the same type succeeded; of a cause with a subject, one with the same subject.
	CuredBySame Cure = "same"
	// CuredByWork: an operation succeeded that an agent worked on.
	CuredByWork Cure = "work"
	// CuredBySettlement: the command whose outcome was unknown has been settled.
	CuredBySettlement Cure = "settlement"
	// CuredByRelease: the node has left quarantine.
	CuredByRelease Cure = "release"
	// CuredByRestart: an admin has moved the node out of install_failed, with another plan and all of its attempts.
	CuredByRestart Cure = "restart"
	// CuredByProvider: the provider reports that the machine is well again.
	CuredByProvider Cure = "provider"
	// CuredByWorkflow: the workflow has ended well, was reconciled, or was cancelled by an operator.
	CuredByWorkflow Cure = "workflow"
)

// causeRule is one row of the cure table.
type causeRule struct {
	cause Cause
	cures []Cure
}

// cureTable has the cures of each cause. The gravest cause comes first. An admin's clearance cures all and is not
// repeated.
var cureTable = []causeRule{
	{CauseQuarantine, []Cure{CuredByRelease}},
	{CauseUnknown, []Cure{CuredBySettlement}},
	{CauseMemory, []Cure{CuredByWork}},
	{CauseProvider, []Cure{CuredByProvider}},
	{CauseWorkflow, []Cure{CuredByWorkflow, CuredBySame}},
	{CauseReimage, []Cure{CuredByImage, CuredByRestart}},
	{CauseUpgrade, []Cure{CuredByImage, CuredBySame}},
	{CauseJoin, []Cure{CuredByJoin, CuredByImage, CuredBySame}},
	{CauseReconfigure, []Cure{CuredBySame, CuredByImage}},
	{CausePlan, []Cure{CuredBySame, CuredByImage, CuredByRestart}},
	{CauseRMA, []Cure{CuredBySame}},
	{CauseReboot, []Cure{CuredByBoot, CuredByImage, CuredBySame}},
	{CauseNetboot, []Cure{CuredBySame, CuredByBoot, CuredByImage}},
	{CauseHardware, []Cure{CuredBySame}},
	{CauseRecord, []Cure{CuredByWork, CuredByRestart}},
}

// causeOfType names the cause that a failed operation of a type leaves.
var causeOfType = map[OperationType]Cause{
	Reimage: CauseReimage, Upgrade: CauseUpgrade, JoinCluster: CauseJoin, Reconfigure: CauseReconfigure,
	RunPlan: CausePlan, RMAType: CauseRMA, Reboot: CauseReboot, Netboot: CauseNetboot,
	Onboard: CauseWorkflow, Decommission: CauseWorkflow, TestHardware: CauseHardware,
	EnterMaintenance: CauseRecord, ExitMaintenance: CauseRecord, NodeTransition: CauseRecord,
}

// Causes lists every cause, the gravest first.
func Causes() []Cause {
	out := make([]Cause, 0, len(cureTable))
	for _, r := range cureTable {
		out = append(out, r.cause)
	}
	return out
}

// CauseOf returns the cause that a failed operation of the type leaves.
func CauseOf(t OperationType) Cause { return causeOfType[t] }

// Cures lists what takes the cause away besides an admin's word.
func (c Cause) Cures() []Cure { return slices.Clone(c.rule().cures) }

func (c Cause) rule() causeRule {
	for _, r := range cureTable {
		if r.cause == c {
			return r
		}
	}
	return causeRule{cause: c}
}

// Happened is what a machine's record learns at one moment, as far as it cures anything.
type Happened struct {
	Cures []Cure
	// Same is the cause that a failed operation of this type would have left; Subject goes with it.
	Same    Cause
	Subject string
}

// Cured reports whether what happened takes the cause away. subject is a plan's id, a command's id or empty.
func Cured(c Cause, subject string, h Happened) bool {
	for _, cure := range h.Cures {
		switch {
		case cure == CuredByAdmin:
			return true
		case !slices.Contains(c.rule().cures, cure):
		case cure == CuredBySame && (h.Same != c || h.Subject != subject):
		case cure == CuredBySettlement && h.Subject != subject:
		case cure == CuredByRestart && subject != "" && h.Subject != subject: // another plan than the one that failed
		default:
			return true
		}
	}
	return false
}

// Graver compares two causes: negative where a is the graver one.
func Graver(a, b Cause) int { return cmp.Compare(slices.Index(Causes(), a), slices.Index(Causes(), b)) }
