package maas

import (
	"slices"

	"github.com/ingot-metal/ingot/internal/hwid"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// inUse are the statuses of a machine that somebody has: what it has on its disks is theirs.
var inUse = []ms.Status{
	ms.Allocated, ms.Reserved, ms.Deploying, ms.Deployed, ms.FailedDeployment, ms.Releasing, ms.DiskErasing,
	ms.FailedReleasing,
	ms.FailedDiskErasing,
}

// foreign says whose a machine of MAAS is if it is not ours: by its owner there, and by the annotation of what is
// deployed. It is empty for what is ours, and for what nobody has.
func foreign(machine string, m *Machine, user string) string {
	if m == nil {
		return ""
	}
	switch note := m.Annotations[noteMachine]; {
	case m.Owner != "" && m.Owner != user:
		return "it belongs to " + m.Owner + " there"
	case note != "" && note != machine:
		return "its annotation there says that it is " + note
	}
	return ""
}

// otherMachine compares what MAAS has found of a machine with what is registered here. MAC addresses alone name it in
// MAAS, and a network card may have moved.
func otherMachine(o Order, m *Machine) hwid.Verdict {
	if m == nil {
		return hwid.Verdict{}
	}
	return hwid.Judge(hwid.Facts{Serial: hwid.Text(o.Serial), Registered: true}, m.Hardware)
}

// unmarked reports whether somebody has the machine and no annotation names it as ours. MAAS forgets the
// annotations of a machine that it releases, so that a machine which was released and taken anew has none.
func unmarked(machine string, m *Machine) bool {
	had := slices.Contains(inUse, m.Status) || m.Status == ms.Broken && m.Owner != ""
	return had && m.Annotations[noteMachine] != machine
}

// heldBy says what shows that somebody else has a machine. One that is ours to deploy is allocated before it is
// annotated.
func heldBy(machine string, m *Machine, user string) string {
	why := foreign(machine, m, user)
	if why == "" && m != nil && m.is(ms.Deploying, ms.Deployed, ms.FailedDeployment) && unmarked(machine, m) {
		why = "it was deployed there without the annotation " + noteMachine + "=" + machine
	}
	return why
}

// unguarded requests take nothing from anybody: MAAS itself refuses to allocate what somebody has, and to annotate what
// belongs to somebody else.
var unguarded = []Verb{Create, Allocate, Annotate}

// Guarded reports whether a request may take a machine from whoever has it, so that whose it is must be read right
// before.
func (v Verb) Guarded() bool { return v != "" && !slices.Contains(unguarded, v) }

// notTheirs lets nothing be asked for that changes a machine of somebody else.
func notTheirs(o Order, s Seen, n Next) Next {
	switch {
	case !n.Do.Guarded() || s.M == nil:
		return n
	case foreign(o.Machine, s.M, s.User) != "":
		return conflict(s, foreign(o.Machine, s.M, s.User))
	case unmarked(o.Machine, s.M):
		return conflict(s, "no annotation there says that it is ours: if it is, set the workload annotation "+noteMachine+"="+
			o.Machine)
	}
	return n
}
