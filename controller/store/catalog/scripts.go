package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/catalog"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

func scriptMessage(r dbsqlc.Script) *baremetalv1.Script {
	return &baremetalv1.Script{
		ScriptRef: r.ScriptRef, Sha256: r.Sha256, SizeBytes: r.SizeBytes, Interpreter: r.Interpreter,
		Destructive: r.Destructive,
		CreatedAt:   convert.Timestamp(r.CreatedAt),
	}
}

// GetScript reads one entry of the catalogue; SCRIPT_NOT_FOUND where there is none.
func (s *Store) GetScript(ctx context.Context, ref string) (*baremetalv1.Script, error) {
	row, err := s.db.Q.GetScript(ctx, ref)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, start.ScriptNotFound(ref)
	}
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	return scriptMessage(row), nil
}

// ListScripts reads scripts by name.
func (s *Store) ListScripts(ctx context.Context, afterRef string, limit int32) ([]*baremetalv1.Script, error) {
	rows, err := s.db.Lists(ctx).ListScripts(ctx, dbsqlc.ListScriptsParams{AfterRef: afterRef, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list scripts: %w", err)
	}
	out := make([]*baremetalv1.Script, 0, len(rows))
	for _, r := range rows {
		out = append(out, scriptMessage(r))
	}
	return out, nil
}

// AddScript adds an entry. place stores the file under its digest; it runs while that file cannot be removed, and may
// run more than once. The same script again is returned as it was added first.
func (s *Store) AddScript(
	ctx context.Context, sc *baremetalv1.Script, place func() error, actor string, now time.Time,
) (*baremetalv1.Script, error) {
	var row dbsqlc.Script
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.LockBlob(ctx, sc.GetSha256()); err != nil {
			return fmt.Errorf("lock blob: %w", err)
		}
		n, err := q.InsertScript(ctx, dbsqlc.InsertScriptParams{
			ScriptRef: sc.GetScriptRef(), Sha256: sc.GetSha256(), SizeBytes: sc.GetSizeBytes(), Interpreter: sc.GetInterpreter(),
			Destructive: sc.GetDestructive(), Now: now,
		})
		if err != nil {
			return fmt.Errorf("insert script: %w", err)
		}
		row, err = q.LockScript(ctx, sc.GetScriptRef())
		if errors.Is(err, pgx.ErrNoRows) {
			return pgtx.ErrLostVersion // removed in between: again
		}
		if err != nil {
			return fmt.Errorf("read script: %w", err)
		}
		if n == 0 {
			if err := sameScript(row, sc); err != nil {
				return err
			}
			return place() // a file that was lost comes back
		}
		if err := history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "ADD_SCRIPT", Target: row.ScriptRef, Data: map[string]string{"sha256": row.Sha256},
		}, now); err != nil {
			return err
		}
		return place()
	})
	if err != nil {
		return nil, fmt.Errorf("add script: %w", err)
	}
	return scriptMessage(row), nil
}

func sameScript(have dbsqlc.Script, want *baremetalv1.Script) error {
	if have.Sha256 == want.GetSha256() && have.Interpreter == want.GetInterpreter() &&
		have.Destructive == want.GetDestructive() {
		return nil
	}
	return failure.AlreadyExists("SCRIPT_EXISTS", "there is another script %q; scripts never change: choose another name",
		have.ScriptRef).
		WithField("script.script_ref", "taken by another script")
}

// RemoveScript takes an entry out of the catalogue, unless an active operation needs it. Its blob is for DropBlob.
func (s *Store) RemoveScript(ctx context.Context, ref, actor string, now time.Time) (*baremetalv1.Script, error) {
	var row dbsqlc.Script
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if row, err = q.LockScript(ctx, ref); errors.Is(err, pgx.ErrNoRows) {
			return start.ScriptNotFound(ref)
		}
		if err != nil {
			return fmt.Errorf("lock script: %w", err)
		}
		operation, err := userOfScript(ctx, q, ref)
		if err != nil {
			return err
		}
		if err := catalog.MayRemoveScript(ref, operation); err != nil {
			return err
		}
		if err := q.DeleteScript(ctx, ref); err != nil {
			return fmt.Errorf("delete script: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "REMOVE_SCRIPT", Target: ref,
			Data: map[string]string{"sha256": row.Sha256}}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("remove script: %w", err)
	}
	return scriptMessage(row), nil
}

// userOfScript reads the operation under way that needs a script; empty for none.
func userOfScript(ctx context.Context, q *dbsqlc.Queries, ref string) (string, error) {
	steps, err := q.ScriptStepsUnderWay(ctx)
	if err != nil {
		return "", fmt.Errorf("look for operations of the script: %w", err)
	}
	for _, step := range steps {
		var m baremetalv1.Step
		if err := proto.Unmarshal(step.Spec, &m); err != nil {
			return "", fmt.Errorf("read step of operation %s: %w", step.OperationID, err)
		}
		if m.GetSsh().GetCommand() == ref {
			return step.OperationID, nil
		}
	}
	return "", nil
}

// DestructiveScripts reports whether a plan is destructive, by itself or because a script of the catalogue is.
func DestructiveScripts(ctx context.Context, q *dbsqlc.Queries, p *baremetalv1.Plan) (bool, error) {
	if plan.Destructive(p) {
		return true, nil
	}
	for _, s := range p.GetSteps() {
		if s.GetSsh() == nil {
			continue
		}
		row, err := q.GetScript(ctx, s.GetSsh().GetCommand())
		if errors.Is(err, pgx.ErrNoRows) {
			continue // scriptsReady refuses it
		}
		if err != nil {
			return false, fmt.Errorf("read script: %w", err)
		}
		if row.Destructive {
			return true, nil
		}
	}
	return false, nil
}
