package decider

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// othersMost is how many changes of the power by others one operation notes. More are no news.
const othersMost = 8

// noteByOthers is the kind of a note about somebody else at the power button.
const noteByOthers = "power_by_others"

// powerSeen notes a change of the machine's power that no command of the operation was to make: another manager, a
// person, or the machine itself. Nothing is switched back: two managers that undo each other would never end.
func (d *decider) powerSeen(e operation.PowerSeen) {
	if d.op.Phase != operation.Running || !e.At.After(d.op.StartedAt) || d.switching(e) {
		return
	}
	told := d.op.Evidence[evidence.PowerChangesSeen]
	word := fmt.Sprintf("%s at %s", e.State, e.At.UTC().Format(time.RFC3339))
	if strings.Count(told, ", ")+1 >= othersMost || strings.Contains(told, word) {
		return
	}
	d.op.Evidence = maps.Clone(d.op.Evidence)
	if d.op.Evidence == nil {
		d.op.Evidence = map[string]string{}
	}
	if told != "" {
		word = told + ", " + word
	}
	d.op.Evidence[evidence.PowerChangesSeen] = word
	d.note(noteByOthers, "the BMC shows that the machine is "+e.State+", and no command of this operation was to switch it "+
		"so; it is left as it is")
}

// switching reports whether a command of the operation explains the change: one that restarts or switches the machine
// is under way, or has left it in the state that is seen now, or ended after the BMC was read.
func (d *decider) switching(e operation.PowerSeen) bool {
	c := d.cmd
	if c == nil || !switches(c.Kind) {
		return leftSo(d.op.Evidence, e)
	}
	return c.FinishedAt.IsZero() || !e.At.After(c.FinishedAt.Add(operation.ClockSlack)) || leftSo(c.Evidence, e) ||
		leftSo(d.op.Evidence, e)
}

// leftSo reports whether evidence shows that a command of ours has left the machine in the state that is seen.
func leftSo(of map[string]string, e operation.PowerSeen) bool {
	off, on := of[evidence.PowerOffSeenAt], of[evidence.PowerOnSeenAt]
	switch {
	case on != "":
		return e.State == "on"
	case off != "":
		return e.State == "off"
	}
	return false
}

// switches reports whether commands of a kind change a machine's power, or restart it, by themselves or through a
// provider.
func switches(k operation.Kind) bool {
	switch k {
	case operation.KindReboot, operation.KindNetboot, operation.KindPower, operation.KindPowerOff, operation.KindPowerOn,
		operation.KindKexec:
		return true
	}
	return operation.ProvenByBoot(k)
}

// toldOfOthers notes what an executor has seen of somebody else while it switched the machine.
func (d *decider) toldOfOthers(e operation.Resulted) {
	if said := e.Evidence[evidence.PowerByOthers]; said != "" && d.op.Phase == operation.Running {
		d.note(noteByOthers, "somebody else has switched the machine while this operation did: "+said)
	}
}
