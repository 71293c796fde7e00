package rollout

import (
	"fmt"
	"time"
)

// How long to rest before the next look at machines that are under way, and at a fleet that is frozen.
const (
	lookEvery   = 250 * time.Millisecond
	frozenEvery = 2 * time.Second
)

// startsAtOnce bounds what one decision begins, so that one rollout does not hold up the others.
const startsAtOnce = 100

// Decide returns the next state and the work to begin.
func Decide(s Spec, w World, now time.Time) Decision {
	d := Decision{State: w.State, Cause: w.Cause, Wave: w.Wave, SoakUntil: w.SoakUntil, Acked: w.Acked,
		AckedWave: w.AckedWave}
	switch w.State {
	case AwaitingApproval:
		d.Wait, d.Message = ForApproval, "another person must approve it"
	case Running:
		d.run(s, w, now)
	case Paused:
		d.paused(s, w, now)
	case Stopping:
		d.stopping(w, now)
	case Succeeded, CompletedWithFailures, Failed, Canceled:
	}
	return d
}

func (d *Decision) run(s Spec, w World, now time.Time) {
	closed := closedGate(s, w)
	switch {
	case w.Total.Pending == 0 && w.Total.Running == 0:
		d.end(w, closed)
	case closed != "" && w.Total.Pending > 0:
		d.closeGate(s, w, closed, now)
	case w.InWave.Pending == 0 && w.InWave.Running == 0:
		d.nextWave(s, w, now)
	case w.FleetFrozen && w.InWave.Pending > 0:
		d.Wait, d.Message, d.Next = Frozen, "nothing begins until an administrator thaws the fleet", now.Add(frozenEvery)
	default:
		d.Start = next(s, w)
		d.waitForMachines(w, len(d.Start), now)
		if len(d.Start) == startsAtOnce {
			d.Next = now
		}
	}
}

// end sets the last state once every machine has ended.
func (d *Decision) end(w World, closed string) {
	t := w.Total
	d.State, d.Cause, d.Message = EndState(t, w.Refused, closed != ""), "", closed
	switch d.State {
	case Failed:
		d.Cause = ByGate
	case CompletedWithFailures:
		d.Message = fmt.Sprintf("%d of %d machines are done, %d failed, %d canceled", t.Succeeded, t.Machines-w.Refused,
			t.Failed, t.Canceled)
		if left := t.Skipped - w.Refused; left > 0 {
			d.Message += fmt.Sprintf(", %d skipped at their turn", left)
		}
	}
}

func (d *Decision) closeGate(s Spec, w World, closed string, now time.Time) {
	d.Cause, d.Message = ByGate, closed
	if s.CancelOnGate {
		d.State = Stopping
		d.stopping(w, now)
		d.Message = closed
		return
	}
	d.State, d.Wait = Paused, PausedByGate
	d.Next = lookIf(w.Total.Running > 0, now)
}

// nextWave begins the next wave once the one before has rested.
func (d *Decision) nextWave(s Spec, w World, now time.Time) {
	switch {
	case w.Wave > 0 && s.Soak > 0 && w.SoakUntil.IsZero():
		d.SoakUntil = now.Add(s.Soak)
		d.soak()
	case now.Before(w.SoakUntil):
		d.soak()
	default:
		d.Wave, d.SoakUntil, d.AckedWave, d.Next = w.Wave+1, time.Time{}, 0, now
	}
}

func (d *Decision) soak() {
	d.Wait, d.Next = Soaking, d.SoakUntil
	d.Message = fmt.Sprintf("wave %d has ended; the next one begins at %s", d.Wave, d.SoakUntil.UTC().Format(time.RFC3339))
}

func (d *Decision) waitForMachines(w World, started int, now time.Time) {
	running := w.Total.Running + started
	d.Wait, d.Next = ForMachines, now.Add(lookEvery)
	d.Message = fmt.Sprintf("%d under way, %d to come in wave %d of %d", running, w.InWave.Pending-started, w.Wave,
		w.Waves)
	if w.HeldByBudget > 0 && w.HeldByBudget == running {
		d.Wait, d.Message = ForBudget, fmt.Sprintf("all %d under way wait for room in a budget", running)
	}
}

// paused waits for the work that is under way. A rollout with nothing left to begin ends like any other.
func (d *Decision) paused(s Spec, w World, now time.Time) {
	if w.Total.Pending == 0 && w.Total.Running == 0 {
		d.end(w, closedGate(s, w))
		return
	}
	d.Next = lookIf(w.Total.Running > 0, now)
	if w.Cause == ByGate {
		d.Wait, d.Message = PausedByGate, closedGate(s, w)
		return
	}
	d.Wait, d.Message = PausedByOperator, "resume it or cancel it"
}

func (d *Decision) stopping(w World, now time.Time) {
	d.CancelPending = w.Total.Pending > 0
	if w.Total.Running > 0 {
		d.Wait, d.Next = ForMachines, now.Add(lookEvery)
		d.Message = fmt.Sprintf("%d under way, nothing more begins", w.Total.Running)
		return
	}
	d.State, d.Message = Canceled, ""
	if d.Cause == ByGate {
		d.State = Failed
	}
}

func lookIf(needed bool, now time.Time) time.Time {
	if !needed {
		return time.Time{}
	}
	return now.Add(lookEvery)
}

// closedGate returns why a gate is closed; empty if none is.
func closedGate(s Spec, w World) string {
	if why := s.WaveGate.closed(w.InWave, w.AckedWave); why != "" {
		return fmt.Sprintf("wave %d: %s", w.Wave, why)
	}
	return s.TotalGate.closed(w.Total, w.Acked)
}

func (g Gate) closed(t Tally, acked int) string {
	failed, of := t.Failed-acked, t.Machines-t.Skipped
	switch {
	case failed <= 0:
		return ""
	case g.Failures > 0 && failed >= g.Failures:
		return fmt.Sprintf("%d of %d machines have failed, the gate is %d", failed, of, g.Failures)
	case g.Percent > 0 && failed*100 >= g.Percent*of:
		return fmt.Sprintf("%d of %d machines have failed, the gate is %d %%", failed, of, g.Percent)
	}
	return ""
}

// next are the machines to begin on.
func next(s Spec, w World) []string {
	return pick(s, w.Pending, w.Total.Running, w.InDomain, startsAtOnce)
}

// pick takes machines in their order, most at a time. One whose domain is full is passed by, and keeps its place.
func pick(s Spec, pending []Machine, running int, inDomain map[string]int, most int) []string {
	room := min(len(pending), most)
	if s.MaxInFlight > 0 {
		room = min(room, s.MaxInFlight-running)
	}
	in := map[string]int{}
	for d, n := range inDomain {
		in[d] = n
	}
	var out []string
	for _, m := range pending {
		if len(out) >= room {
			break
		}
		if s.MaxPerDomain > 0 && in[m.Domain] >= s.MaxPerDomain {
			continue
		}
		in[m.Domain]++
		out = append(out, m.ID)
	}
	return out
}
