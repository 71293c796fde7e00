package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// RolloutLive shows a rollout while it goes on.
type RolloutLive struct {
	cfg  LiveConfig
	wave int32
	said string
	// failed are the machines that have failed, in the order of the rollout; shown those that have had their line.
	failed []*pb.RolloutMachine
	shown  map[string]bool
}

// NewRolloutLive makes a view of one rollout.
func NewRolloutLive(cfg LiveConfig) *RolloutLive {
	return &RolloutLive{cfg: cfg, shown: map[string]bool{}}
}

// mostFailures is how many machines that fail have a line while the rollout goes on. All are in its end.
const mostFailures = 20

// NewFailures reports whether more machines have failed than Failed has been given.
func (l *RolloutLive) NewFailures(r *pb.Rollout) bool {
	return int(r.GetTally().GetFailed()) > len(l.failed)
}

// Failed returns a line for each machine that has failed since the last call, with its reason and the next command.
func (l *RolloutLive) Failed(all []*pb.RolloutMachine) string {
	var b strings.Builder
	for _, m := range all {
		if l.shown[m.GetMachineId()] {
			continue
		}
		l.shown[m.GetMachineId()] = true
		switch n := len(l.shown); {
		case n <= mostFailures:
			b.WriteString(l.cfg.Style.Bad("✗ "+m.GetMachineId()) + "  " + failureText(m) + "  → ingot why " +
				m.GetMachineId() + "\n")
		case n == mostFailures+1:
			b.WriteString(l.cfg.Style.Dim("… more machines fail; all are listed at the end") + "\n")
		}
	}
	l.failed = all
	return b.String()
}

func failureText(m *pb.RolloutMachine) string {
	text := fallback(m.GetReason(), "FAILED")
	if m.GetMessage() != "" {
		text += ": " + Clean(m.GetMessage())
	}
	return text
}

// End sums up a rollout that has ended: the failures first, by their reason.
func (l *RolloutLive) End(r *pb.Rollout) string {
	byReason := map[string][]string{}
	var reasons []string
	for _, m := range l.failed {
		reason := fallback(m.GetReason(), "FAILED")
		if byReason[reason] == nil {
			reasons = append(reasons, reason)
		}
		byReason[reason] = append(byReason[reason], m.GetMachineId())
	}
	slices.SortStableFunc(reasons, func(a, b string) int { return len(byReason[b]) - len(byReason[a]) })
	var b strings.Builder
	for _, reason := range reasons {
		names := byReason[reason]
		b.WriteString(l.cfg.Style.Bad(fmt.Sprintf("✗ %d %s", len(names), reason)) + ": " + NameList(names) +
			"  → ingot why " + names[0] + "\n")
	}
	y := r.GetTally()
	fmt.Fprintf(&b, "%s: %d of %d machines done", l.cfg.Style.rolloutState(r), y.GetDone(), y.GetMachines())
	for _, part := range parts(y) {
		b.WriteString(", " + part)
	}
	b.WriteByte('\n')
	if len(l.failed) > 0 {
		b.WriteString("To list them: ingot rollout machines " + r.GetRolloutId() + " --filter state=FAILED\n")
	}
	return b.String()
}

// NameList is the first of many names, and how many more there are.
func NameList(names []string) string {
	const most = 8
	if len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// parts are the numbers of a tally that are not zero, without those of finished and pending machines.
func parts(t *pb.RolloutTally) []string {
	var out []string
	for _, part := range []struct {
		n    int32
		what string
	}{{t.GetRunning(), "running"}, {t.GetFailed(), "failed"}, {t.GetSkipped(), "skipped"}, {t.GetCanceled(), "canceled"}} {
		if part.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	return out
}

// Change returns the lines for a rollout that has changed. Where no status line is drawn, every change is a line.
func (l *RolloutLive) Change(r *pb.Rollout) string {
	s := l.cfg.Style
	out := ""
	for _, w := range r.GetWaves() {
		if over := w.GetWave() < r.GetWave() || RolloutEnded(r) && w.GetWave() <= r.GetWave(); over && w.GetWave() > l.wave {
			l.wave = w.GetWave()
			out += waveLine(r, w) + "\n"
		}
	}
	if !l.cfg.Boxed && !RolloutEnded(r) && r.GetWave() > 0 && int(r.GetWave()) <= len(r.GetWaves()) {
		out += waveLine(r, r.GetWaves()[r.GetWave()-1]) + "  " + r.GetWaitReason() + "\n"
	}
	said := r.GetState().String() + r.GetWaitReason()
	if said == l.said || r.GetState() == pb.Rollout_RUNNING && r.GetWaitReason() != "SOAKING" &&
		r.GetWaitReason() != "FLEET_FROZEN" {
		l.said = said
		return out
	}
	l.said = said
	out += s.rolloutState(r)
	if r.GetMessage() != "" {
		out += ": " + Clean(r.GetMessage())
	}
	return out + "\n" + rolloutHint(r)
}

func waveLine(r *pb.Rollout, w *pb.RolloutWave) string {
	t := w.GetTally()
	line := fmt.Sprintf("wave %d/%d %s %d/%d", w.GetWave(), len(r.GetWaves()), waveBar(t),
		t.GetMachines()-t.GetLeft(), t.GetMachines())
	for _, part := range parts(t) {
		line += "  " + part
	}
	return line
}

// Status is the line that a terminal keeps at the bottom.
func (l *RolloutLive) Status(r *pb.Rollout, now time.Time) string {
	if !l.cfg.Boxed || RolloutEnded(r) || r.GetWave() == 0 || int(r.GetWave()) > len(r.GetWaves()) {
		return ""
	}
	line := waveLine(r, r.GetWaves()[r.GetWave()-1]) + "  " + r.GetWaitReason()
	if r.GetSoakUntil() != nil {
		line += " " + Duration(r.GetSoakUntil().AsTime().Sub(now))
	}
	return l.cfg.Style.Dim(line + pace(r, now))
}

// pace is how fast machines end, and how long the rest takes at that.
func pace(r *pb.Rollout, now time.Time) string {
	y := r.GetTally()
	ended, rest := y.GetDone()+y.GetFailed(), y.GetLeft()
	took := now.Sub(r.GetCreatedAt().AsTime())
	if ended == 0 || took < time.Second {
		return ""
	}
	left := time.Duration(float64(took) / float64(ended) * float64(rest)).Truncate(time.Second)
	return fmt.Sprintf("  %.1f/min  %s left", float64(ended)/took.Minutes(), Duration(left))
}
