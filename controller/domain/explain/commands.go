package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// ObservedPower returns the power state that the BMC reported last, and the time of the report; the zero time where
// none is stored.
func (f *Facts) ObservedPower() (string, time.Time) {
	return f.Machine.GetStatus().GetPowerState(), When(f.Machine.GetStatus().GetPowerStateAt())
}

// CommandSigns adds what the executor of a command has shown, with its time.
func CommandSigns(c *operation.Command, add func(time.Time, string)) {
	add(c.AckedAt, "agent "+c.ExecutorID+" acknowledged command "+c.ID)
	add(c.ClaimedAt, "agent "+c.ExecutorID+" says that command "+c.ID+" is done")
	if c.Outcome != "" {
		text := "result of command " + c.ID + ": " + string(c.Outcome)
		if c.Message != "" {
			text += ", " + c.Message
		}
		add(c.FinishedAt, text+Pairs(c.Evidence))
	}
}

// Pairs writes evidence into brackets; nothing where there is none.
func Pairs(m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	parts := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// CommandFacts returns how far a command got; nothing for nil.
func (f *Facts) CommandFacts(c *operation.Command) []string {
	if c == nil {
		return nil
	}
	out := []string{fmt.Sprintf("command %s (%s, attempt %d) is %s with %s", c.ID, c.Kind, c.Attempt, c.State,
		c.ExecutorID)}
	switch {
	case !c.GrantedAt.IsZero():
		out = append(out, "the start was granted at "+f.At(c.GrantedAt))
	case !c.SentAt.IsZero():
		out = append(out, "it was sent at "+f.At(c.SentAt)+", and its start has not been granted: nothing was started")
	default:
		out = append(out, "it has not been sent: nothing was started")
	}
	if c.Message != "" {
		out = append(out, "the executor says: "+c.Message)
	}
	return out
}

// Untaken returns how far a command got that was never granted, by the events that are stored of it. An answer of the
// agent that was lost on the way is not stored, so nothing here accuses the agent.
func (f *Facts) Untaken(c *operation.Command) string {
	text := "command " + c.ID + " to agent " + c.ExecutorID
	switch {
	case !c.AckedAt.IsZero():
		return text + " was acknowledged at " + f.At(c.AckedAt) + ", and its start was not granted"
	case !c.SentAt.IsZero():
		return text + " was sent at " + f.At(c.SentAt) + ", and no acknowledgement of it is stored"
	}
	return text + " was never sent"
}

// StartCommand is a command that starts an operation on a machine at rest.
type StartCommand struct {
	Start                Start
	Command, Consequence string
	Destructive          bool
}

// StartCommands returns those that `why` offers. The machine's id goes behind the command.
func StartCommands() []StartCommand {
	return []StartCommand{
		{StartExit, "ingot exit-maintenance ", "puts the machine back into service", false},
		{StartEnter, "ingot enter-maintenance ",
			"takes the machine out of service, so that it can be imaged; nothing is drained", false},
		{StartReimage, "ingot reimage ", "writes an OS image; all data on the target disk is lost", true},
		{StartReboot, "ingot reboot ", "reboots the machine; what runs on it is interrupted", true},
	}
}

// AddImage stores a first system in the catalogue.
func AddImage() Action {
	return Action{Command: "ingot image add NAME FILE",
		Consequence: "stores a system that machines can be installed with; there is none"}
}
