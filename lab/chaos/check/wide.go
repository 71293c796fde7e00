package check

import (
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// span is a stretch of time in which a machine counts for a limit.
type span struct {
	machine  string
	from, to time.Time
}

// most returns how many machines have a span over the same moment at most, and that moment.
func most(spans []span) (n int, when time.Time) {
	for _, s := range spans {
		at := map[string]bool{}
		for _, o := range spans {
			if !o.from.After(s.from) && o.to.After(s.from) {
				at[o.machine] = true
			}
		}
		if len(at) > n {
			n, when = len(at), s.from
		}
	}
	return n, when
}

// budget: no more machines are at work than the budget has slots. Its work begins with the first grant of a destructive
// command. It ends with the success of its operation, or the release of its slot by an administrator.
func (j *judge) budget() {
	if j.h.Header.Slots == 0 || j.h.stepped() {
		return
	}
	var spans []span
	for _, c := range j.h.Commands {
		o := j.operations[c.GetOperationId()]
		if c.GetKind() != "repave" || c.GetGrantedAt() == nil || o == nil || o.GetFinishedAt() == nil {
			continue
		}
		s := span{c.GetMachineId(), c.GetGrantedAt().AsTime(), o.GetFinishedAt().AsTime()}
		if o.GetPhase() != baremetalv1.Operation_SUCCEEDED {
			s.to = j.freedAfter(s)
		}
		spans = append(spans, s)
	}
	if n, when := most(spans); n > j.h.Header.Slots {
		j.add(RuleBudget, "budget", "%d machines had a destructive command under way at %s, and %d slots there are", n,
			when.Format(time.RFC3339Nano), j.h.Header.Slots)
	}
}

// freedAfter is when the slot of an operation that did not succeed was certainly still held: until a release, or the
// next operation on its machine, which takes the slot over.
func (j *judge) freedAfter(s span) time.Time {
	end := s.to
	for _, f := range j.h.Freed {
		if f.Machine == s.machine && f.At.After(s.to) && (end.Equal(s.to) || f.At.Before(end)) {
			end = f.At
		}
	}
	return end
}

// rollouts: no more of a rollout's operations are under way at once than it allows. No wave begins before the one
// before it has ended, and none begins once the gate has closed. The sums are those of the operations.
func (j *judge) rollouts() {
	for _, r := range j.h.Rollouts {
		j.pace(r)
		j.sums(r)
	}
}

func (j *judge) pace(r Rollout) {
	if j.h.stepped() {
		return
	}
	var spans []span
	begun, ended, failures := map[int]time.Time{}, map[int]time.Time{}, []time.Time{}
	for _, m := range r.Machines {
		o := j.operations[m.Operation]
		if o == nil || o.GetFinishedAt() == nil {
			continue
		}
		s := span{m.Machine, o.GetCreatedAt().AsTime(), o.GetFinishedAt().AsTime()}
		spans = append(spans, s)
		if first, known := begun[m.Wave]; !known || s.from.Before(first) {
			begun[m.Wave] = s.from
		}
		if s.to.After(ended[m.Wave]) {
			ended[m.Wave] = s.to
		}
		if m.State == "FAILED" {
			failures = append(failures, s.to)
		}
	}
	if n, when := most(spans); r.AtOnce > 0 && n > r.AtOnce {
		j.add(RuleRollout, r.ID, "%d machines were under work at %s, %d may be", n, when.Format(time.RFC3339Nano), r.AtOnce)
	}
	for wave, from := range begun {
		for before, to := range ended {
			if before < wave && from.Before(to) {
				j.add(RuleRollout, r.ID, "wave %d began %v before wave %d had ended", wave, to.Sub(from), before)
			}
		}
	}
	slices.SortFunc(failures, time.Time.Compare)
	if r.Failures == 0 || len(failures) < r.Failures {
		return
	}
	closed := failures[r.Failures-1]
	for _, s := range spans {
		if s.from.After(closed.Add(gateSlack)) {
			j.add(RuleRollout, r.ID, "the work on %s began %v after the gate had closed", s.machine, s.from.Sub(closed))
		}
	}
}

// gateSlack is how much later than the end of an operation its rollout may count it.
const gateSlack = 5 * time.Second

func (j *judge) sums(r Rollout) {
	failed, unfinished := 0, 0
	for _, m := range r.Machines {
		o := j.operations[m.Operation]
		switch m.State {
		case "FAILED":
			failed++
		case "PENDING", "RUNNING":
			unfinished++
		}
		if o != nil && Ended(o) && m.State != o.GetPhase().String() {
			j.add(RuleRollout, r.ID, "%s is %s, and its operation %s is %s", m.Machine, m.State, m.Operation, o.GetPhase())
		}
		if m.State == "SUCCEEDED" && o == nil {
			j.add(RuleRollout, r.ID, "%s is SUCCEEDED without an operation", m.Machine)
		}
	}
	if unfinished > 0 {
		j.add(RuleRollout, r.ID, "it is %s, and %d machines have not ended", r.State, unfinished)
	}
	closed := r.Failures > 0 && failed >= r.Failures
	if r.State == "SUCCEEDED" && failed > 0 || r.State == "COMPLETED_WITH_FAILURES" && closed {
		j.add(RuleRollout, r.ID, "it is %s, and %d machines have failed", r.State, failed)
	}
}

// wanted are the types of events that a webhook must have brought of an operation.
func wanted(o *baremetalv1.Operation) []string {
	out := []string{"operation.created"}
	switch o.GetPhase() {
	case baremetalv1.Operation_SUCCEEDED:
		out = append(out, "operation.started", "operation.succeeded")
	case baremetalv1.Operation_FAILED:
		out = append(out, "operation.failed")
	case baremetalv1.Operation_CANCELED:
		out = append(out, "operation.canceled")
	}
	return out
}

// eventTypes are the types of webhooks by the kinds of events of operations.
var eventTypes = map[string]string{
	"created": "operation.created", "started": "operation.started", "succeeded": "operation.succeeded",
	"failed": "operation.failed", "canceled": "operation.canceled",
}

// AllTold reports whether the receiver of webhooks has everything that it must get.
func AllTold(h History) bool {
	j := newJudge(h)
	j.webhooks()
	return len(j.found) == 0
}

// webhooks: each event of an operation reaches the receiver at least once, under one id, rightly signed.
func (j *judge) webhooks() {
	if !j.h.Header.Wide {
		return
	}
	type key struct{ operation, kind string }
	ids, arrived := map[key]string{}, map[key]bool{}
	for _, t := range j.h.Told {
		k := key{t.Operation, t.Type}
		if !t.Signed {
			j.add(RuleWebhooks, t.Operation, "event %s (%s) is not signed as it must be", t.ID, t.Type)
		}
		if ids[k] != "" && ids[k] != t.ID {
			j.add(RuleWebhooks, t.Operation, "%s came as event %s and as event %s", t.Type, ids[k], t.ID)
		}
		ids[k] = t.ID
		arrived[k] = arrived[k] || !t.Failed
	}
	for _, o := range j.h.Operations {
		for _, kind := range wanted(o) {
			if !arrived[key{o.GetOperationId(), kind}] {
				j.add(RuleWebhooks, o.GetOperationId(), "it is %s, and no webhook has brought %s", o.GetPhase(), kind)
			}
		}
	}
	for _, e := range j.h.Events {
		if kind := eventTypes[e.Kind]; kind != "" && !arrived[key{e.Operation, kind}] {
			j.add(RuleWebhooks, e.Operation, "a watcher has seen event %d (%s), and no webhook has brought it", e.Seq, e.Kind)
		}
	}
}
