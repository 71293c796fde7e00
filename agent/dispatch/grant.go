package dispatch

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/pki"
)

type grantAnswer struct {
	grant   *fleetv1.Grant
	refused *fleetv1.GrantRefused
}

func (a grantAnswer) nonce() []byte {
	if a.grant != nil {
		return a.grant.GetNonce()
	}
	return a.refused.GetNonce()
}

// errAskAgain: this ask has come to nothing, the next may.
var errAskAgain = errors.New("ask again")

// acquireGrant returns when the command may be started, with the ask that was granted, or must not be (a Result).
func (d *Dispatcher) acquireGrant(ctx context.Context, j *job) (ask, *executor.Result, error) {
	for {
		if r, err := d.admission(ctx, j); r != nil || err != nil {
			return ask{}, r, err
		}
		free := !d.cfg.needsGrant(j.spec)
		if free && d.heardTime() {
			return ask{asked: d.cfg.Boottime()}, nil, nil
		}
		if r, err := d.awaitLink(ctx, j); r != nil || err != nil {
			return ask{}, r, err
		}
		if free {
			// Its session has told the time, by which it may have expired.
			r, err := d.admission(ctx, j)
			return ask{asked: d.cfg.Boottime()}, r, err
		}
		a, r, err := d.askOnce(ctx, j)
		if errors.Is(err, errAskAgain) {
			continue
		}
		if r != nil || err != nil {
			return ask{}, r, err
		}
		if err := afterGrant.HitCtx(ctx); err != nil {
			return ask{}, nil, err
		}
		// Things may have changed while the answer was on its way.
		r, err = d.admission(ctx, j)
		return a, r, err
	}
}

// renewGrant is for an executor that is about to destroy data. A grant that has expired since the command was started
// is requested again: the controller may have assigned the machine to another operation meanwhile.
func (d *Dispatcher) renewGrant(ctx context.Context, j *job, a ask) (*executor.Result, error) {
	r, err := d.admission(ctx, j)
	for r == nil && err == nil && !a.fresh(d.cfg.Boottime()) {
		d.cfg.Log.Warn("the grant is too old to destroy anything; asking again", "command_id", j.id)
		a, r, err = d.acquireGrant(ctx, j)
	}
	return afterStart(r, "begun, and stopped before anything was destroyed: "), err
}

// afterStart makes of a refusal the failure of a command that was started, which nothing came of.
func afterStart(r *executor.Result, why string) *executor.Result {
	if r != nil && r.Outcome == fleetv1.CommandResult_REFUSED {
		r.Outcome, r.Message = fleetv1.CommandResult_FAILED, why+r.Message
	}
	return r
}

func (d *Dispatcher) admission(ctx context.Context, j *job) (*executor.Result, error) {
	now, err := d.controllerNow(ctx)
	if err != nil {
		return nil, err
	}
	meta, err := d.cfg.Store.Meta(ctx)
	if err != nil {
		return nil, err
	}
	return admit(j.spec, circumstances{now: now, locked: meta.LockedReason, canceled: j.isCanceled(),
		needsGrant: d.cfg.needsGrant(j.spec)}), nil
}

// awaitLink waits for a session. A command that expires meanwhile is refused.
func (d *Dispatcher) awaitLink(ctx context.Context, j *job) (*executor.Result, error) {
	for {
		attached, _ := d.linkState()
		select {
		case <-attached:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-j.canceled:
			return d.admission(ctx, j)
		case <-d.cfg.Clock.After(expiryCheck):
			if r, err := d.admission(ctx, j); r != nil || err != nil {
				return r, err
			}
		}
	}
}

const expiryCheck = 10 * time.Second

// askOnce asks, and waits for an answer to this ask or for a grant that answers an earlier one. A controller may need
// longer than GrantWait for each answer: such grants must not all be thrown away.
func (d *Dispatcher) askOnce(ctx context.Context, j *job) (ask, *executor.Result, error) {
	_, detached := d.linkState()
	a, err := d.sendAsk(ctx, j)
	if errors.Is(err, state.ErrStorageFull) {
		return ask{}, nil, errors.Join(errAskAgain, d.pause(ctx, storageRetry))
	}
	if err != nil {
		return ask{}, nil, err
	}
	j.asked = append(freshAsks(j.asked, d.cfg.Boottime()), a)
	patience := d.cfg.Clock.After(d.cfg.GrantWait)
	for {
		select {
		case got := <-j.answers:
			of, known := answeredAsk(j.asked, got, d.cfg.Boottime())
			if !known {
				d.cfg.Log.Info("answer to another ask ignored", "command_id", j.id)
				continue
			}
			ok, r, err := d.judge(ctx, j, of, got)
			if ok {
				of.held, err = heldGrant(got.grant, of.claims.StateID)
			}
			if ok || r != nil || err != nil {
				return of, r, err
			}
		case <-detached:
			return ask{}, nil, errAskAgain
		case <-patience:
			return ask{}, nil, errAskAgain
		case <-j.canceled:
			return ask{}, nil, errAskAgain // admission makes the result
		case <-ctx.Done():
			return ask{}, nil, context.Cause(ctx)
		}
	}
}

// freshAsks returns the asks whose answers may still be acted on, in their order.
func freshAsks(asked []ask, boottime time.Duration) []ask {
	return slices.DeleteFunc(asked, func(a ask) bool { return !a.fresh(boottime) })
}

// answeredAsk returns the ask that has the answer's nonce, and reports whether the answer counts. One to an earlier ask
// counts only if it is a grant that may still be acted on. A refusal of an earlier ask does not count: the controller
// may have granted a newer one since, and the command must then not be reported as refused.
func answeredAsk(asked []ask, got grantAnswer, boottime time.Duration) (ask, bool) {
	for i, a := range slices.Backward(asked) {
		if bytes.Equal(got.nonce(), a.claims.Nonce) {
			return a, i == len(asked)-1 || got.grant != nil && a.fresh(boottime)
		}
	}
	return ask{}, false
}

// asking is a request for a grant before it is numbered and sent.
type asking struct {
	ctx context.Context //nolint:containedctx // lives as long as one call
	job *job
	ask ask
	err error
}

// sendAsk numbers an ask and sends it. Asks are sent in the order of their numbers: one that came after a higher one
// would look like an older copy of this memory. Those that come together are numbered by one durable write.
func (d *Dispatcher) sendAsk(ctx context.Context, j *job) (ask, error) {
	a := &asking{ctx: ctx, job: j}
	if err := d.asks.Do(a); err != nil {
		return ask{}, err
	}
	return a.ask, a.err
}

// sendAsks takes the time first, so that no window opens late, and makes the numbers durable.
func (d *Dispatcher) sendAsks(list []*asking) {
	commandIDs := make([]string, len(list))
	for i, a := range list {
		commandIDs[i] = a.job.id
		a.ask = ask{asked: d.cfg.Boottime(), claims: pki.GrantClaims{
			CommandID: a.job.id, TargetID: a.job.spec.GetTargetId(), AgentID: d.cfg.AgentID, StateID: d.stateID,
			Digest: a.job.stored.Digest, Nonce: make([]byte, nonceSize),
		}}
		_, _ = rand.Read(a.ask.claims.Nonce) // since Go 1.24 it never fails: it ends the program instead
	}
	numbers, err := d.cfg.Store.NextGrantSeqs(list[0].ctx, commandIDs...)
	for i, a := range list {
		if a.err = err; err != nil {
			continue
		}
		a.ask.claims.Seq, a.ask.earlier = numbers[i].Seq, numbers[i].Earlier
		if a.err = beforeGrantRequest.HitCtx(a.ctx); a.err != nil {
			continue
		}
		d.send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_GrantRequest{GrantRequest: &fleetv1.GrantRequest{
			CommandId: a.job.id, StateId: d.stateID, Seq: a.ask.claims.Seq, Nonce: a.ask.claims.Nonce,
			BootId: d.cfg.BootID, Digest: a.job.stored.Digest, Earlier: a.ask.earlier,
		}}})
	}
}

// judge returns the consequence of an answer to the ask. ok, a result and an error are all unset when the answer is
// invalid and the wait goes on.
func (d *Dispatcher) judge(
	ctx context.Context, j *job, a ask, got grantAnswer,
) (ok bool, r *executor.Result, err error) {
	if got.refused != nil {
		r, err := d.refused(ctx, j, got.refused)
		return false, r, err
	}
	if err := a.verify(got.grant, d.grantKeys()); err != nil {
		d.cfg.Log.Error("worthless grant ignored", "command_id", j.id, "error", err)
		return false, nil, nil
	}
	if !a.fresh(d.cfg.Boottime()) {
		d.cfg.Log.Warn("grant came too late; asking again", "command_id", j.id)
		return false, nil, errAskAgain
	}
	return true, nil, nil
}

// heldGrant is a grant as the agent's memory keeps it, to show it to controllers.
func heldGrant(g *fleetv1.Grant, stateID string) ([]byte, error) {
	b, err := proto.Marshal(&fleetv1.StartedGrant{Grant: g, StateId: stateID})
	if err != nil {
		return nil, fmt.Errorf("keep the grant of command %s: %w", g.GetCommandId(), err)
	}
	return b, nil
}

func (d *Dispatcher) refused(ctx context.Context, j *job, g *fleetv1.GrantRefused) (*executor.Result, error) {
	if g.GetReason() == baremetalv1.Reason_AGENT_STATE_ROLLED_BACK.String() {
		return nil, state.ErrRolledBack
	}
	if g.GetFinal() {
		r := executor.Refused(baremetalv1.Reason_GRANT_REFUSED, "%s: %s", g.GetReason(), g.GetMessage())
		return &r, nil
	}
	wait := time.Duration(g.GetRetryAfterMs()) * time.Millisecond
	select {
	case <-d.cfg.Clock.After(min(max(wait, 100*time.Millisecond), time.Minute)):
	case <-j.canceled:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return nil, errAskAgain
}
