package bmc

import (
	"time"

	"github.com/ingot-metal/ingot/agent/provider"
)

// powerPlan is the way of one machine to one power state: what was asked and what was read. It decides, and touches
// nothing.
type powerPlan struct {
	want provider.PowerState
	// gently is until when the operating system may still go by itself; zero: not asked.
	gently time.Time
	// deadline is when it ends without success. A machine that is read to be on its way there has until lastly: firmware
	// may stay in that state for as long as its self-test takes.
	deadline, lastly time.Time

	softAsked bool
	asked     int       // hard switches that were accepted
	askedAt   time.Time // the last of them
	// noSoft is set when there is no soft switch.
	noSoft bool

	// ours: the machine was asked to go where it is wanted. seen is the last state that lasts, also of an earlier plan.
	ours bool
	seen provider.PowerState
	// others are the states to which the machine was switched from elsewhere, at most othersMost.
	others []provider.PowerState

	reads    int
	lastRead provider.PowerState
	lastErr  error // of the last exchange; nil when it was answered
}

// move is what to do next.
type move int

const (
	moveDone move = iota
	moveWait
	moveSoft  // ask for a soft off
	moveHard  // switch
	moveStuck // it answers, and the state does not follow
	moveGone  // it does not answer
)

const (
	// Accepted switches that had no effect are repeated: both are idempotent, and BMCs lose requests while they start.
	repeatAfter = 15 * time.Second
	repeatMost  = 3
	othersMost  = 8
	// onItsWayMost is how many times as long as for a switch is waited for a machine that is read to be on its way.
	onItsWayMost = 4
)

// next decides after each reading. An unreadable state is no reason to switch, except that off may be asked for when
// the BMC answers and doesn't know.
func (d *powerPlan) next(now time.Time) move {
	switch {
	case d.lastErr == nil && d.reads > 0 && d.lastRead == d.want:
		return moveDone
	case !now.Before(d.deadline) && (!d.onItsWay() || !now.Before(d.lastly)):
		return d.end()
	case d.onItsWay():
		return moveWait // to ask once more would be answered with a refusal, or start it anew
	case d.lastErr != nil || d.reads == 0:
		return moveWait
	case d.want == provider.PowerOff && now.Before(d.gently) && !d.noSoft:
		if d.softAsked {
			return moveWait
		}
		return moveSoft
	case d.asked > 0 && (d.asked >= repeatMost || now.Sub(d.askedAt) < repeatAfter):
		return moveWait
	}
	return moveHard
}

// onItsWay reports whether the last reading was of a machine that is going where it is wanted.
func (d *powerPlan) onItsWay() bool {
	ways := map[provider.PowerState]provider.PowerState{provider.PowerOn: provider.PowerTurningOn,
		provider.PowerOff: provider.PowerTurningOff}
	return d.lastErr == nil && d.reads > 0 && d.lastRead == ways[d.want]
}

// end returns the move that ends a failed plan.
func (d *powerPlan) end() move {
	if d.lastErr != nil || d.reads == 0 {
		return moveGone
	}
	return moveStuck
}

// read takes what one exchange brought.
func (d *powerPlan) read(state provider.PowerState, err error) {
	d.lastErr = err
	if err != nil {
		return
	}
	d.reads++
	d.lastRead = state
	if state != provider.PowerOn && state != provider.PowerOff {
		return
	}
	// To where it is wanted it may go by our order; away from there it never does.
	changed := d.seen != "" && state != d.seen
	if changed && (state != d.want || !d.ours) && len(d.others) < othersMost {
		d.others = append(d.others, state)
	}
	d.seen = state
}
