package maas

import (
	"slices"

	"github.com/ingot-metal/ingot/internal/hwid"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// inUse are the statuses of a machine with an owner: the data on its disks is theirs.
var inUse = []ms.Status{
	ms.Allocated, ms.Reserved, ms.Deploying, ms.Deployed, ms.FailedDeployment, ms.Releasing, ms.DiskErasing,
	ms.FailedReleasing,
	ms.FailedDiskErasing,
}

// foreign returns the holder of a machine in MAAS that is not ours: by its owner there, and by the annotation of the
// deployment. It is empty for our machines and for free ones.
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

// otherMachine compares the hardware that MAAS has found with the registered serial number. MAC addresses alone name it
// in MAAS, and a network card may have moved.
func otherMachine(serial string, m *Machine) hwid.Verdict {
	if m == nil {
		return hwid.Verdict{}
	}
	return hwid.Judge(hwid.Facts{Serial: hwid.Text(serial), Registered: true}, m.Hardware)
}

// unmarked reports whether the machine is in use and no annotation names it as ours. MAAS forgets the annotations of a
// machine that it releases, so that a machine which was released and taken anew has none.
func unmarked(machine string, m *Machine) bool {
	had := slices.Contains(inUse, m.Status) || m.Status == ms.Broken && m.Owner != ""
	return had && m.Annotations[noteMachine] != machine
}

// heldBy returns the evidence that another client has a machine. Our own are allocated before they are annotated.
func heldBy(machine string, m *Machine, user string) string {
	why := foreign(machine, m, user)
	if why == "" && m != nil && m.is(ms.Deploying, ms.Deployed, ms.FailedDeployment) && unmarked(machine, m) {
		why = "it was deployed there without the annotation " + noteMachine + "=" + machine
	}
	return why
}

// unguarded requests take no machine from another client: MAAS itself refuses to allocate a machine in use, and to
// annotate one of another user.
var unguarded = []Verb{Create, Allocate, Annotate}

// Guarded reports whether a request may take a machine from its holder, so that the holder must be read right before.
func (v Verb) Guarded() bool { return v != "" && !slices.Contains(unguarded, v) }

// keepForeign replaces a request that would change another client's machine by a conflict.
func keepForeign(o Order, s Seen, n Next) Next {
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
