package reconfig

import (
	"context"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/executor"
)

// Digest names the difference, whole. Orders accept a drift by it.
func (d Drift) Digest() string { return digestOf([]byte(d.Diff)) }

// acceptedBy reports whether an order that accepts the digest may go on.
func (d Drift) acceptedBy(digest string) bool { return d.Diff == "" || d.Digest() == digest }

// refusal returns the text of the refusal, with the digest that accepts the drift.
func (d Drift) refusal(accepted string) string {
	what := fmt.Sprintf("generation %d was changed by another party; accepted_drift %s overwrites it", d.Generation,
		d.Digest())
	if accepted != "" {
		what = fmt.Sprintf("generation %d has another drift now than the accepted one; accepted_drift %s overwrites it",
			d.Generation, d.Digest())
	}
	return what + ":\n" + shorten(d.Diff)
}

func (d Drift) evidence() map[string]string {
	return map[string]string{"drift": shorten(d.Diff), "drift_digest": d.Digest()}
}

// overwrite lets the order replace the one table that its drift shows.
func (o ordered) overwrite(tableDigest string) {
	if o.Firewall != nil && o.acceptedDrift != "" {
		o.Firewall.OverwriteDigest = tableDigest
	}
}

// driftedSince compares once more, right before the change: no order accepts a change that was made since it was taken.
// nil: go on.
func (e *Executor) driftedSince(ctx context.Context, in intent) (*executor.Result, error) {
	now, err := e.committed(ctx)
	if err != nil || in.AnyDrift || now.Generation == 0 {
		return nil, err
	}
	evidence, diff, err := e.readBack(ctx, now.Settings, nil)
	if err != nil {
		return nil, err
	}
	drift := Drift{Generation: now.Generation, Diff: diff}
	if drift.acceptedBy(in.AcceptedDrift) {
		return nil, nil
	}
	r := executor.Failed(baremetalv1.Reason_CONFIG_DRIFT, "%s", drift.refusal(in.AcceptedDrift)).
		WithEvidence(evidence).WithEvidence(drift.evidence())
	return &r, nil
}
