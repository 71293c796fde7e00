package maas

import (
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// powerPatience is how long a switch may take to show before it is asked for again, maxSwitches how often it is:
// switching may be repeated.
const (
	powerPatience = 30 * time.Second
	maxSwitches   = 4
)

func decidePowerOn(_ Order, s Seen) Next {
	switch {
	case s.Power == "on":
	case s.M.is(ms.Allocated):
		return conflict(s, "MAAS deploys an allocated machine that it switches on; deploy it, or release it first")
	case s.M.Owner == "":
		return conflict(s, "MAAS switches on no machine without an owner; commission it, or deploy it")
	}
	return decidePower(s, "on", TurnOn, evidence.PowerOnSeenAt, nil)
}

func decidePowerOff(o Order, s Seen) Next {
	if s.M.moves() {
		return conflict(s, "it is not switched off in the middle of that; abort it first")
	}
	return decidePower(s, "off", TurnOff, evidence.PowerOffSeenAt, pick(o.Params, "stop_mode"))
}

func decidePower(s Seen, want string, v Verb, key string, params map[string]string) Next {
	a, asked := s.P.Asked[v]
	switch {
	case s.Power == want:
		return done(s, map[string]string{key: s.Now.UTC().Format(time.RFC3339Nano), "maas_power": want})
	case s.M.manual() && want == "off" && s.M.is(ms.Ready, ms.New):
		// No user's system runs on it, and a switch by hand is not waited for.
		return done(s, map[string]string{"maas_power": "not read: its power type in MAAS is manual"})
	case s.M.manual():
		return fail("MAAS_REFUSED", false, "MAAS has no way to switch the machine: its power type there is manual")
	case asked && (s.Now.Sub(a.At) < powerPatience || a.Times >= maxSwitches):
		return wait("the machine to be " + want)
	}
	return do(v, params)
}

// manual reports whether MAAS neither switches the machine nor reads its power.
func (m *Machine) manual() bool { return m.PowerType == "manual" || m.PowerType == "" }

func decidePowerQuery(_ Order, s Seen) Next { return done(s, map[string]string{"maas_power": s.Power}) }

// abortable is what MAAS aborts; of all else it answers 409 (src/maasserver/models/node.py, Node.abort_operation).
var abortable = []ms.Status{ms.Commissioning, ms.Deploying, ms.DiskErasing, ms.Testing}

// Aborts decides whether a cancel asks MAAS to abort the task that it shows; why describes what goes on where it does
// not. A wipe is not ended halfway, though MAAS would. mayAct: requests may be made.
func Aborts(s Seen, mayAct bool) (abort bool, why string) {
	switch {
	case s.M == nil:
		return false, "MAAS has no such machine"
	case !s.M.moves():
		return false, "nothing is under way in MAAS, which says " + s.M.StatusName
	case !s.M.is(abortable...):
		return false, "MAAS goes on by itself, and has no way to abort it: it says " + s.M.StatusName
	case s.M.is(ms.DiskErasing):
		return false, "MAAS goes on by itself, as no wipe is ended halfway: it says " + s.M.StatusName
	case !mayAct:
		return false, "MAAS goes on by itself, as the command may ask for nothing any more: it says " + s.M.StatusName
	}
	return true, ""
}

// decideAbort stops what MAAS is doing to the machine.
func decideAbort(_ Order, s Seen) Next {
	switch {
	case !s.M.moves():
		return done(s, map[string]string{"maas_aborted": s.M.StatusName})
	case s.P.asked(Abort):
		return wait("MAAS to stop")
	case s.M.is(abortable...):
		return do(Abort, nil)
	}
	return wait("MAAS, which says " + s.M.StatusName)
}

// decideDelete: MAAS has no such record any more. A machine in use is not deleted.
func decideDelete(o Order, s Seen) Next {
	switch {
	case o.Retain && s.M != nil && s.M.is(ms.Ready, ms.New, ms.Broken, ms.Retired):
		return done(s, map[string]string{"maas_record": "retained, as the region says"})
	case s.M == nil:
		return done(s, map[string]string{"maas_record": "absent"})
	case s.P.asked(Delete):
		return wait("MAAS to forget the machine")
	case s.M.Locked:
		return conflict(s, "it is locked there; unlock it in MAAS first")
	case s.M.is(ms.New, ms.Ready, ms.Broken, ms.Retired, ms.Missing, ms.FailedCommissioning, ms.FailedTesting):
		return do(Delete, nil)
	}
	return conflict(s, "release it before it is deleted")
}

func decideBroken(o Order, s Seen) Next {
	switch {
	case s.M.is(ms.Broken):
		return done(s, map[string]string{"maas_marked": "broken"})
	case s.P.asked(MarkBroken):
		return wait("MAAS to show it")
	case s.M.Owner != s.User:
		return conflict(s, "MAAS lets its owner alone mark it as broken, and it has no owner")
	}
	return do(MarkBroken, pick(o.Params, "comment"))
}

func decideFixed(o Order, s Seen) Next {
	switch {
	case !s.M.is(ms.Broken):
		return done(s, map[string]string{"maas_marked": strings.ToLower(s.M.StatusName)})
	case s.P.asked(MarkFixed):
		return wait("MAAS to show it")
	}
	return do(MarkFixed, pick(o.Params, "comment"))
}

// decideOverride takes a machine whose tests have failed for well: an operator who has looked at it orders that.
func decideOverride(o Order, s Seen) Next {
	switch {
	case !s.M.is(ms.FailedTesting):
		return done(s, map[string]string{"maas_marked": strings.ToLower(s.M.StatusName)})
	case s.P.asked(Override):
		return wait("MAAS to show it")
	}
	return do(Override, pick(o.Params, "comment"))
}

func decideRescue(_ Order, s Seen) Next {
	switch m := s.M; {
	case m.is(ms.RescueMode):
		return done(s, map[string]string{"maas_rescue": "true"})
	case m.is(ms.FailedEnteringRescueMode) && s.P.asked(EnterRescue):
		return failedThere(s)
	case s.P.asked(EnterRescue) || m.is(ms.EnteringRescueMode):
		return wait("MAAS to bring up the rescue system")
	case m.is(ms.Ready, ms.Broken, ms.Deployed, ms.FailedEnteringRescueMode):
		return do(EnterRescue, nil)
	}
	return conflict(s, "the rescue system is entered from Ready, Broken or Deployed")
}

func decideExitRescue(_ Order, s Seen) Next {
	switch m := s.M; {
	case m.is(ms.FailedExitingRescueMode) && s.P.asked(ExitRescue):
		return failedThere(s)
	case s.P.asked(ExitRescue) && m.is(ms.RescueMode, ms.ExitingRescueMode), m.is(ms.ExitingRescueMode):
		return wait("MAAS to leave the rescue system")
	case m.is(ms.RescueMode, ms.FailedExitingRescueMode, ms.FailedEnteringRescueMode):
		return do(ExitRescue, nil)
	}
	return done(s, map[string]string{"maas_rescue": "false"})
}
