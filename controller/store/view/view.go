// Package view stores views: lists of machines that are saved under a name. It decides who sees and who changes them.
package view

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	// MaxOfOwner bounds the views of one owner.
	MaxOfOwner = 200
	// MaxOfAll bounds all views.
	MaxOfAll = 5000
)

// Store holds views. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store { return &Store{db: db} }

// Caller is who asks. Actor is the name in the audit log, Identity tells those of one name apart.
type Caller struct {
	Actor, Identity string
	// MayShare and Admin are the caller's rights.
	MayShare, Admin bool
}

func (c Caller) owns(r dbsqlc.SavedView) bool { return r.CreatedByIdentity == c.Identity }

func (c Caller) sees(r dbsqlc.SavedView) bool { return r.Shared || c.owns(r) }

// mayChange says why the caller may not make next of a view that it sees.
func (c Caller) mayChange(old, next dbsqlc.SavedView) error {
	switch {
	case !c.owns(old) && !c.Admin:
		return failure.Denied(auth.ReasonScopeTooSmall,
			"view %q is shared by %s, who can change it, and so can admins; save yours under another name", old.Name,
			old.CreatedBy).WithField("view.name", "of another owner")
	case !c.owns(old) && !next.Shared:
		return failure.Invalid("INVALID_FIELD", "view.shared: only %s, who owns view %q, can make it personal; or delete it",
			old.CreatedBy, old.Name).WithField("view.shared", "of another owner")
	}
	return nil
}

// SetView makes a view, or changes what the mask names of one; without a mask all of it.
func (s *Store) SetView(
	ctx context.Context, who Caller, v *baremetalv1.View, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.View, error) {
	var row dbsqlc.SavedView
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.LockViews(ctx); err != nil {
			return fmt.Errorf("lock views: %w", err)
		}
		old, exists, err := find(ctx, q, v.GetName())
		if err != nil {
			return err
		}
		conditions := pgtx.ConditionsOf(opts)
		next := changed(old, v, conditions.Mask)
		if err := who.admits(ctx, q, old, exists, next, conditions); err != nil {
			return err
		}
		row, err = q.PutView(ctx, dbsqlc.PutViewParams{
			Name: v.GetName(), Title: next.Title, Description: next.Description, Filter: next.Filter, OrderBy: next.OrderBy,
			Columns: pgtx.NonNil(next.Columns), GroupBy: pgtx.NonNil(next.GroupBy), Shared: next.Shared, Actor: who.Actor,
			Identity: who.Identity, Now: now,
		})
		if err != nil {
			return fmt.Errorf("store view: %w", err)
		}
		return audit(ctx, q, "SET_VIEW", row, who, now)
	})
	if err != nil {
		return nil, fmt.Errorf("set view: %w", err)
	}
	return who.message(row), nil
}

// admits refuses a change that the caller may not make, that its conditions do not allow, or for which there is no
// room.
func (c Caller) admits(
	ctx context.Context, q *dbsqlc.Queries, old dbsqlc.SavedView, exists bool, next dbsqlc.SavedView, w pgtx.Conditions,
) error {
	if exists && !c.sees(old) {
		return failure.AlreadyExists(pgtx.ResourceExists, "the name %q is taken by somebody's personal view; choose another",
			old.Name).WithField("view.name", "taken")
	}
	if err := w.Check(fmt.Sprintf("view %q", next.Name), pgtx.ResourceExists,
		pgtx.Stored{Exists: exists, Version: old.Version}); err != nil {
		return err
	}
	if exists {
		if err := c.mayChange(old, next); err != nil {
			return err
		}
	}
	if next.Shared && !c.MayShare {
		return failure.Denied(auth.ReasonScopeTooSmall, "to share a view needs scope operate; keep it personal").
			WithField("view.shared", "needs scope operate").WithMeta("required_scope", auth.ScopeOperate.String())
	}
	if exists {
		return nil
	}
	return c.hasRoom(ctx, q)
}

// hasRoom refuses one more view where there are too many.
func (c Caller) hasRoom(ctx context.Context, q *dbsqlc.Queries) error {
	n, err := q.CountViews(ctx, c.Identity)
	switch {
	case err != nil:
		return fmt.Errorf("count views: %w", err)
	case n.OfOwner >= MaxOfOwner:
		return failure.Precondition("INVALID_FIELD", "%s has %d views; delete some first", c.Actor, n.OfOwner).
			WithField("view", "too many views of one owner")
	case n.OfAll >= MaxOfAll:
		return failure.Precondition("INVALID_FIELD", "there are %d views; some must be deleted first", n.OfAll).
			WithField("view", "too many views")
	}
	return nil
}

// Fields are the fields of a view that its clients write.
func Fields() []string {
	return []string{"title", "description", "filter", "order_by", "columns", "group_by", "shared"}
}

// changed is a view after a client's change. Paths are some of Fields; without any, all of them are changed.
func changed(old dbsqlc.SavedView, v *baremetalv1.View, paths []string) dbsqlc.SavedView {
	old.Name = v.GetName()
	if len(paths) == 0 {
		paths = Fields()
	}
	for _, p := range paths {
		switch p {
		case "title":
			old.Title = v.GetTitle()
		case "description":
			old.Description = v.GetDescription()
		case "filter":
			old.Filter = v.GetFilter()
		case "order_by":
			old.OrderBy = v.GetOrderBy()
		case "columns":
			old.Columns = v.GetColumns()
		case "group_by":
			old.GroupBy = v.GetGroupBy()
		case "shared":
			old.Shared = v.GetShared()
		}
	}
	return old
}

// GetView reads a view that the caller sees.
func (s *Store) GetView(ctx context.Context, who Caller, name string) (*baremetalv1.View, error) {
	row, exists, err := find(ctx, s.db.Q, name)
	if err != nil {
		return nil, fmt.Errorf("get view: %w", err)
	}
	if !exists || !who.sees(row) {
		return nil, notFound(name)
	}
	return who.message(row), nil
}

// ListViews reads the views that the caller sees, by name, from a name on.
func (s *Store) ListViews(ctx context.Context, who Caller, after string, limit int32) ([]*baremetalv1.View, error) {
	rows, err := s.db.Lists(ctx).ViewsAfter(ctx, dbsqlc.ViewsAfterParams{AfterName: after, Identity: who.Identity,
		PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list views: %w", err)
	}
	out := make([]*baremetalv1.View, 0, len(rows))
	for _, r := range rows {
		out = append(out, who.message(r))
	}
	return out, nil
}

// DeleteView removes a view.
func (s *Store) DeleteView(
	ctx context.Context, who Caller, name string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.View, error) {
	var row dbsqlc.SavedView
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.LockViews(ctx); err != nil {
			return fmt.Errorf("lock views: %w", err)
		}
		var exists bool
		var err error
		if row, exists, err = find(ctx, q, name); err != nil {
			return err
		}
		if !exists || !who.sees(row) && !who.Admin {
			return notFound(name)
		}
		if err := pgtx.ConditionsOf(opts).Check(fmt.Sprintf("view %q", name), pgtx.ResourceExists,
			pgtx.Stored{Exists: true, Version: row.Version}); err != nil {
			return err
		}
		if !who.owns(row) && !who.Admin {
			return failure.Denied(auth.ReasonScopeTooSmall,
				"view %q is shared by %s, who can delete it, and so can admins", name, row.CreatedBy).
				WithField("name", "of another owner")
		}
		if err := q.DeleteView(ctx, name); err != nil {
			return fmt.Errorf("delete view: %w", err)
		}
		return audit(ctx, q, "DELETE_VIEW", row, who, now)
	})
	if err != nil {
		return nil, fmt.Errorf("delete view: %w", err)
	}
	return who.message(row), nil
}

func find(ctx context.Context, q *dbsqlc.Queries, name string) (row dbsqlc.SavedView, exists bool, err error) {
	row, err = q.FindView(ctx, name)
	if errors.Is(err, pgx.ErrNoRows) {
		return dbsqlc.SavedView{}, false, nil
	}
	if err != nil {
		return row, false, fmt.Errorf("read view: %w", err)
	}
	return row, true, nil
}

func notFound(name string) error {
	return failure.NotFound("VIEW_NOT_FOUND", "there is no view %q; ingot view list shows them", name).
		WithField("name", "unknown")
}

// audit records a change. What a personal view holds is its owner's alone, and is not written down.
func audit(ctx context.Context, q *dbsqlc.Queries, verb string, r dbsqlc.SavedView, who Caller, now time.Time) error {
	data := map[string]string{"owner": r.CreatedBy, "shared": fmt.Sprint(r.Shared), "version": fmt.Sprint(r.Version)}
	if r.Shared {
		for key, text := range map[string]string{
			"title": r.Title, "filter": r.Filter, "order_by": r.OrderBy, "columns": strings.Join(r.Columns, ","),
			"group_by": strings.Join(r.GroupBy, ","),
		} {
			if text != "" {
				data[key] = text
			}
		}
	}
	return history.Audit(ctx, q, history.AuditEntry{Actor: who.Actor, Verb: verb, Target: r.Name, Data: data}, now)
}

// message is a view as the caller may see it: of somebody else's personal one no more than whose it is.
func (c Caller) message(r dbsqlc.SavedView) *baremetalv1.View {
	out := &baremetalv1.View{
		Name: r.Name, Shared: r.Shared, CreatedBy: r.CreatedBy, Own: c.owns(r), CreatedAt: convert.Timestamp(r.CreatedAt),
		UpdatedAt: convert.Timestamp(r.UpdatedAt), Version: r.Version,
	}
	if c.sees(r) {
		out.Title, out.Description, out.Filter, out.OrderBy = r.Title, r.Description, r.Filter, r.OrderBy
		out.Columns, out.GroupBy = r.Columns, r.GroupBy
	}
	return out
}
