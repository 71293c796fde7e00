// Package view stores views: lists of machines that are saved under a name. Package savedview decides who sees and who
// changes them.
package view

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/savedview"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Store holds views. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store { return &Store{db: db} }

// SetView makes a view, or changes what the mask names of one; without a mask all of it.
func (s *Store) SetView(
	ctx context.Context, who savedview.Caller, v savedview.View, now time.Time, opts ...pgtx.WriteOption,
) (savedview.View, error) {
	var stored savedview.View
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.LockViews(ctx); err != nil {
			return fmt.Errorf("lock views: %w", err)
		}
		next, err := admitted(ctx, q, who, v, pgtx.ConditionsOf(opts))
		if err != nil {
			return err
		}
		row, err := q.PutView(ctx, dbsqlc.PutViewParams{
			Name: v.Name, Title: next.Title, Description: next.Description, Filter: next.Filter, OrderBy: next.OrderBy,
			Columns: pgtx.NonNil(next.Columns), GroupBy: pgtx.NonNil(next.GroupBy), Shared: next.Shared, Actor: who.Actor,
			Identity: who.Identity, Now: now,
		})
		if err != nil {
			return fmt.Errorf("store view: %w", err)
		}
		stored = viewOf(row)
		return audit(ctx, q, "SET_VIEW", stored, who, now)
	})
	if err != nil {
		return savedview.View{}, fmt.Errorf("set view: %w", err)
	}
	return who.Visible(stored), nil
}

// admitted returns the view after a change, unless the caller or the change's conditions forbid it.
func admitted(
	ctx context.Context, q *dbsqlc.Queries, who savedview.Caller, v savedview.View, w pgtx.Conditions,
) (next savedview.View, err error) {
	old, err := find(ctx, q, v.Name)
	if err != nil {
		return next, err
	}
	if err := who.NameFree(old); err != nil {
		return next, err
	}
	var before savedview.View
	if old != nil {
		before = *old
	}
	next = before.Changed(v, w.Mask)
	if err := w.Check(fmt.Sprintf("view %q", next.Name), pgtx.ResourceExists,
		pgtx.Stored{Exists: old != nil, Version: before.Version}); err != nil {
		return next, err
	}
	var n dbsqlc.CountViewsRow
	if old == nil {
		if n, err = q.CountViews(ctx, who.Identity); err != nil {
			return next, fmt.Errorf("count views: %w", err)
		}
	}
	return next, who.Admit(old, next, n.OfOwner, n.OfAll)
}

// GetView reads a view that the caller sees.
func (s *Store) GetView(ctx context.Context, who savedview.Caller, name string) (savedview.View, error) {
	v, err := find(ctx, s.db.Q, name)
	if err != nil {
		return savedview.View{}, fmt.Errorf("get view: %w", err)
	}
	if !who.Finds(v, false) {
		return savedview.View{}, notFound(name)
	}
	return *v, nil
}

// ListViews reads the views that the caller sees, by name, from a name on.
func (s *Store) ListViews(
	ctx context.Context,
	who savedview.Caller,
	after string,
	limit int32,
) ([]savedview.View, error) {
	rows, err := s.db.Lists(ctx).ViewsAfter(ctx, dbsqlc.ViewsAfterParams{AfterName: after, Identity: who.Identity,
		PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list views: %w", err)
	}
	out := make([]savedview.View, 0, len(rows))
	for _, r := range rows {
		out = append(out, who.Visible(viewOf(r)))
	}
	return out, nil
}

// DeleteView removes a view.
func (s *Store) DeleteView(
	ctx context.Context, who savedview.Caller, name string, now time.Time, opts ...pgtx.WriteOption,
) (savedview.View, error) {
	var gone savedview.View
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.LockViews(ctx); err != nil {
			return fmt.Errorf("lock views: %w", err)
		}
		old, err := find(ctx, q, name)
		if err != nil {
			return err
		}
		if !who.Finds(old, true) {
			return notFound(name)
		}
		gone = *old
		if err := pgtx.ConditionsOf(opts).Check(fmt.Sprintf("view %q", name), pgtx.ResourceExists,
			pgtx.Stored{Exists: true, Version: gone.Version}); err != nil {
			return err
		}
		if err := who.AdmitDelete(gone); err != nil {
			return err
		}
		if err := q.DeleteView(ctx, name); err != nil {
			return fmt.Errorf("delete view: %w", err)
		}
		return audit(ctx, q, "DELETE_VIEW", gone, who, now)
	})
	if err != nil {
		return savedview.View{}, fmt.Errorf("delete view: %w", err)
	}
	return who.Visible(gone), nil
}

// find returns the view of a name; nil for none.
func find(ctx context.Context, q *dbsqlc.Queries, name string) (*savedview.View, error) {
	row, err := q.FindView(ctx, name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read view: %w", err)
	}
	v := viewOf(row)
	return &v, nil
}

func viewOf(r dbsqlc.SavedView) savedview.View {
	return savedview.View{
		Name: r.Name, Title: r.Title, Description: r.Description, Filter: r.Filter, OrderBy: r.OrderBy, Columns: r.Columns,
		GroupBy: r.GroupBy, Shared: r.Shared, CreatedBy: r.CreatedBy, Owner: r.CreatedByIdentity, CreatedAt: r.CreatedAt,
		UpdatedAt: r.UpdatedAt, Version: r.Version,
	}
}

func notFound(name string) error {
	return failure.NotFound("VIEW_NOT_FOUND", "there is no view %q; ingot view list shows them", name).
		WithField("name", "unknown")
}

// audit records a change. What a personal view holds is its owner's alone, and is not written down.
func audit(
	ctx context.Context,
	q *dbsqlc.Queries,
	verb string,
	v savedview.View,
	who savedview.Caller,
	now time.Time,
) error {
	data := map[string]string{"owner": v.CreatedBy, "shared": fmt.Sprint(v.Shared), "version": fmt.Sprint(v.Version)}
	if v.Shared {
		for key, text := range map[string]string{
			"title": v.Title, "filter": v.Filter, "order_by": v.OrderBy, "columns": strings.Join(v.Columns, ","),
			"group_by": strings.Join(v.GroupBy, ","),
		} {
			if text != "" {
				data[key] = text
			}
		}
	}
	return history.Audit(ctx, q, history.AuditEntry{Actor: who.Actor, Verb: verb, Target: v.Name, Data: data}, now)
}
