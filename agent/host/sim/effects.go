package sim

import (
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
)

// outcome is what the script made of one call for an effect.
type outcome struct {
	fault Fault
	state MachineState
	due   time.Time // of the effect, if it is still to come
}

// do asks the world for one effect that happens after delay, or at once when that is 0. check may refuse the
// call before it counts as asked, or find that there is nothing to do (errNothingToDo).
func (w *World) do(machineID string, check func(*MachineState) error, c change, delay time.Duration) (outcome, error) {
	var out outcome
	st, err := w.update(machineID, func(st *MachineState, now time.Time) error {
		if err := check(st); err != nil {
			return err
		}
		out = w.ask(st, c, now, delay)
		return nil
	})
	out.state = st
	if err != nil {
		return out, err
	}
	return out, w.answer(machineID, c.Kind, out.fault)
}

// ask counts and records the call, finds its fault, and lets happen what happens.
func (w *World) ask(st *MachineState, c change, now time.Time, delay time.Duration) outcome {
	fault := w.count(st, &c, now)
	switch fault.Mode {
	case FailBefore, Decline, CrashBefore, Never:
		return outcome{fault: fault}
	case Late:
		delay = fault.After
	}
	if delay <= 0 {
		st.happen(now, c)
		return outcome{fault: fault}
	}
	due := now.Add(delay)
	st.Pending = append(st.Pending, pending{Due: due, Change: c})
	return outcome{fault: fault, due: due}
}

func (w *World) count(st *MachineState, c *change, now time.Time) Fault {
	st.Asked[c.Kind]++
	fault := w.script.find(st.MachineID, c.Kind, st.Asked[c.Kind])
	c.Fault = fault.Mode
	st.record(now, StageAsked, *c)
	return fault
}

// answer returns the caller's error. It runs without the machine's lock, because it may kill the process.
func (w *World) answer(machineID string, kind Kind, fault Fault) error {
	switch fault.Mode {
	case CrashBefore, CrashAfter:
		w.cfg.Crash()
	case Decline:
		return effect.Refuse(effect.ErrDeclined, effect.ReasonDeclined, "%s of %s", kind, machineID)
	case FailBefore, FailAfter:
	default:
		return nil
	}
	return fmt.Errorf("%s of %s: %s: %w", kind, machineID, fault.Mode, ErrInjected)
}
