package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/engine/spans"
	"github.com/ingot-metal/ingot/controller/session"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
)

// decisions brings events to operations and carries out what is decided.
type decisions struct {
	common
	operations *operationstore.Store
	sender     *commandSender
	peers      *peers
	changes    *changes
	signals    signals
	spans      *spans.Recorder
	index      *commandIndex
}

// handle brings an event to an operation and carries out what is decided.
func (d *decisions) handle(
	ctx context.Context,
	operationID string,
	ev operation.Event,
) (*operationstore.Applied, error) {
	began := d.clock.Now()
	a, err := d.operations.Decide(ctx, operationID, ev, began)
	if err != nil {
		return nil, err
	}
	d.applied(ctx, a, began)
	return a, nil
}

// applied does what follows a decision that is committed.
func (d *decisions) applied(ctx context.Context, a *operationstore.Applied, began time.Time) {
	d.spans.Applied(ctx, a, began)
	d.afterApply(a)
	d.revoked(ctx, a.Revoked)
}

// revoked ends the sessions of certificates that were revoked, here and on the other controllers.
func (d *decisions) revoked(ctx context.Context, fingerprints []string) {
	if len(fingerprints) == 0 {
		return
	}
	n := d.cfg.Sessions.CloseFingerprints(fingerprints, session.ErrRevoked)
	if d.peers.others.Load() > 0 {
		if err := d.peers.announce(ctx, announceRevoked); err != nil {
			d.log.Warn("revocation not announced; other controllers find it within a second", "error", err.Error())
		}
	}
	d.log.Info("certificates revoked", "certificates", len(fingerprints), "sessions_ended", n)
}

// afterApply notifies agents, watchers and metrics of a committed decision.
func (d *decisions) afterApply(a *operationstore.Applied) {
	d.index.note(a)
	for _, o := range a.Send {
		d.sender.send(o)
	}
	if id := a.Decision.CancelOnAgent; id != "" && a.CancelExecutor != "" {
		if !d.sender.sendHere(a.CancelExecutor, cancelMessage(id)) {
			d.sender.forward(a.CancelExecutor, handCancel+id)
		}
	}
	d.observeCommand(a.Command)
	if !a.Decision.OpChanged {
		return
	}
	d.changes.publish()
	if operation.IsTerminal(a.Phase) {
		d.signals.workEnded()
		level := slog.LevelInfo
		if a.Phase == operation.Failed {
			level = slog.LevelWarn
		}
		d.log.Log(
			context.Background(),
			level,
			"operation ended",
			"operation_id",
			a.OperationID,
			"machine_id",
			a.MachineID,
			"type",
			string(a.Type),
			"phase",
			string(a.Phase),
			"stage",
			a.Decision.Op.CurrentStage,
			"reason",
			reasonOf(a.Decision.Op),
		)
		d.cfg.Observer.Ended(string(a.Type), string(a.Phase), a.FinishedAt.Sub(a.CreatedAt))
	}
}

// observeCommand measures a command at the decision that moved it.
func (d *decisions) observeCommand(c *operation.Command) {
	switch {
	case c == nil || c.SentAt.IsZero():
	case c.State == operation.Done && !c.FinishedAt.IsZero():
		d.cfg.Observer.Done(string(c.Kind), c.FinishedAt.Sub(c.SentAt))
	case spans.AckedNow(c):
		d.cfg.Observer.Dispatched(string(c.Kind), c.AckedAt.Sub(c.SentAt))
	}
}

func reasonOf(op operation.Operation) string {
	if op.Error == nil {
		return ""
	}
	return op.Error.Code
}
