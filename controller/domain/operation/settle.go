package operation

import (
	"time"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Booted is a system of a machine that has opened a session.
type Booted struct{ AgentID, Role, BootID string }

// ProofSettles reports whether a system that has come up proves that a command whose outcome was unknown acts no more:
// a reboot has happened, and what lived in the memory of the boot before is gone. The boot of a system from before the
// grant proves nothing.
func ProofSettles(c *Command, b Booted) bool {
	if c == nil || c.State != Unknown ||
		!kind.Of(c.Kind).Restarts && c.ExecutorRole != "installer" {
		return false
	}
	if b.Role == "host" && b.AgentID == c.Evidence[evidence.HostAgentID] && c.ExecutorRole != "host" {
		return ProvesReboot(c.Evidence[evidence.HostBootID], b.BootID)
	}
	return ProvesReboot(c.BootIDBefore, b.BootID)
}

// Repeatable reports whether an unresolved command has ended, as its executor reports, and its effect was not found
// afterwards: no further effect can come.
func Repeatable(c *Command) bool { return c.State == Unknown && c.Reason == "EVIDENCE_MISSING" }

// ProvesReboot reports whether a boot id read now proves that the boot before is over.
func ProvesReboot(before, now string) bool { return before != "" && now != "" && before != now }

// PowerOffSettles reports whether a machine that is off settles the command: what ran on it runs no more. A power-off
// seen before the grant proves nothing.
func PowerOffSettles(c *Command, seen time.Time) bool {
	return c != nil && c.State == Unknown && c.ExecutorRole != "site" && seen.After(c.GrantedAt)
}

// MaySettle refuses to settle a command that is not the machine's unresolved one; unresolved is empty if it has none.
func MaySettle(machineID, unresolved, commandID string) error {
	switch unresolved {
	case "":
		return failure.Precondition("NOTHING_TO_SETTLE", "machine %s has no unresolved command", machineID)
	case commandID:
		return nil
	}
	return failure.Precondition("NOTHING_TO_SETTLE", "the unresolved command is %s, not %s", unresolved, commandID).
		WithField("command_id", "not the machine's unresolved command")
}

// Settle returns an unknown command as done, by an operator's decision or by proof.
func Settle(c *Command, by string) *Command {
	out := c.Clone()
	MayMove(CommandTable, out.State, Done)
	out.State, out.SettledBy = Done, by
	return out
}

// TurnedBack reports whether a step's machine is on its way back to its own system, because the installer has refused.
func TurnedBack(s Step) bool { return s.Evidence[evidence.Refused] != "" }
