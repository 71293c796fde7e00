package operation

import (
	"github.com/ingot-metal/ingot/controller/domain/kind"

	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// othersMost is how many changes of the power by others one operation notes. More are no news.
const othersMost = 8

// NoteOthers is the kind of a note about a switch of the power by others.
const NoteOthers = "power_by_others"

// PowerByOthers takes a change of the machine's power that no command of the operation was to make: another manager, a
// person, or the machine itself. It adds the change to the evidence and returns what to note; empty where a command
// explains it. Nothing is switched back: two managers that undo each other would never end.
func PowerByOthers(op *Operation, cmd *Command, e PowerSeen) string {
	told := op.Evidence[evidence.PowerChangesSeen]
	word := fmt.Sprintf("%s at %s", e.State, e.At.UTC().Format(time.RFC3339))
	if op.Phase != Running || !e.At.After(op.StartedAt) || explained(op, cmd, e) || strings.Contains(told, word) ||
		strings.Count(told, ", ")+1 >= othersMost {
		return ""
	}
	all := map[string]string{}
	maps.Copy(all, op.Evidence)
	if all[evidence.PowerChangesSeen] = word; told != "" {
		all[evidence.PowerChangesSeen] = told + ", " + word
	}
	op.Evidence = all
	return "the BMC shows that the machine is " + e.State + ", and no command of this operation was to switch it so; " +
		"it is left as it is"
}

// explained reports whether a command of the operation explains the change. Such a command restarts or switches the
// machine. It is under way, has left the machine in the present state, or ended after the BMC was read.
func explained(op *Operation, c *Command, e PowerSeen) bool {
	if leftSo(op.Evidence, e) {
		return true
	}
	return c != nil && kind.Of(c.Kind).SwitchesPower &&
		(c.FinishedAt.IsZero() || !e.At.After(c.FinishedAt.Add(ClockSlack)) || leftSo(c.Evidence, e))
}

// leftSo reports whether evidence shows that a command of ours has left the machine in the state that is seen.
func leftSo(of map[string]string, e PowerSeen) bool {
	if of[evidence.PowerOnSeenAt] != "" {
		return e.State == "on"
	}
	return of[evidence.PowerOffSeenAt] != "" && e.State == "off"
}

// SwitchedByOthers returns the note on a result whose executor has seen others switch the machine; "" where it has not.
// The first result of a command counts.
func SwitchedByOthers(cmd *Command, e Resulted) string {
	said := e.Evidence[evidence.PowerByOthers]
	if said == "" || cmd.State != Granted || !cmd.ClaimedAt.IsZero() {
		return ""
	}
	return "another party has switched the machine while this operation did: " + said
}
