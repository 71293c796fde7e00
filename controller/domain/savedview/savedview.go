// Package savedview decides who sees and who changes views: lists of machines that are saved under a name. A personal
// view is its owner's alone; a shared one is seen by all callers.
package savedview

import (
	"time"

	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	// MaxOfOwner bounds the views of one owner.
	MaxOfOwner = 200
	// MaxOfAll bounds all views.
	MaxOfAll = 5000
)

// reasonScope and scopeOperate are package auth's, which no decision imports.
const (
	reasonScope  = "SCOPE_TOO_SMALL"
	scopeOperate = "operate"
)

// View is a view. Columns and GroupBy are keys of package query.
type View struct {
	Name, Title, Description, Filter, OrderBy string
	Columns, GroupBy                          []string
	Shared                                    bool
	// CreatedBy is the owner's name in the audit log, Owner the owner's identity.
	CreatedBy, Owner     string
	CreatedAt, UpdatedAt time.Time
	Version              int64
}

// Fields returns the names of the fields that clients write.
func Fields() []string {
	return []string{"title", "description", "filter", "order_by", "columns", "group_by", "shared"}
}

// Changed returns the view with the named fields of another, and with its name. Paths are some of Fields; without any,
// all of them are taken.
func (v View) Changed(from View, paths []string) View {
	v.Name = from.Name
	if len(paths) == 0 {
		paths = Fields()
	}
	for _, p := range paths {
		switch p {
		case "title":
			v.Title = from.Title
		case "description":
			v.Description = from.Description
		case "filter":
			v.Filter = from.Filter
		case "order_by":
			v.OrderBy = from.OrderBy
		case "columns":
			v.Columns = from.Columns
		case "group_by":
			v.GroupBy = from.GroupBy
		case "shared":
			v.Shared = from.Shared
		}
	}
	return v
}

// Caller reads or changes views. Actor is the name in the audit log; Identity differs between callers of one name.
type Caller struct {
	Actor, Identity string
	// MayShare and Admin are the caller's rights.
	MayShare, Admin bool
}

// Owns reports whether the view is the caller's.
func (c Caller) Owns(v View) bool { return v.Owner == c.Identity }

// Sees reports whether the caller sees what the view holds.
func (c Caller) Sees(v View) bool { return v.Shared || c.Owns(v) }

// Visible returns the view as the caller sees it: of another's personal one only its name, owner and times.
func (c Caller) Visible(v View) View {
	if c.Sees(v) {
		return v
	}
	return View{Name: v.Name, CreatedBy: v.CreatedBy, Owner: v.Owner, CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt,
		Version: v.Version}
}

// NameFree refuses a name that another's personal view has.
func (c Caller) NameFree(old *View) error {
	if old == nil || c.Sees(*old) {
		return nil
	}
	return failure.AlreadyExists("RESOURCE_EXISTS", "the name %q is taken by a view of another person; choose another",
		old.Name).WithField("view.name", "taken")
}

// Admit refuses to make a view that the caller may not make, or for which there is no room. Old is the view that next
// replaces; nil for none. The counts are those before a new view.
func (c Caller) Admit(old *View, next View, ofOwner, ofAll int64) error {
	switch {
	case old != nil && !c.Owns(*old) && !c.Admin:
		return failure.Denied(reasonScope,
			"view %q is shared by %s, who can change it, and so can admins; save yours under another name", old.Name,
			old.CreatedBy).WithField("view.name", "of another owner")
	case old != nil && !c.Owns(*old) && !next.Shared:
		return failure.Invalid("INVALID_FIELD", "view.shared: only %s, who owns view %q, can make it personal; or delete it",
			old.CreatedBy, old.Name).WithField("view.shared", "of another owner")
	case next.Shared && !c.MayShare:
		return failure.Denied(reasonScope, "to share a view needs scope operate; keep it personal").
			WithField("view.shared", "needs scope operate").WithMeta("required_scope", scopeOperate)
	case old == nil && ofOwner >= MaxOfOwner:
		return failure.Precondition("INVALID_FIELD", "%s has %d views; delete some first", c.Actor, ofOwner).
			WithField("view", "too many views of one owner")
	case old == nil && ofAll >= MaxOfAll:
		return failure.Precondition("INVALID_FIELD", "there are %d views; some must be deleted first", ofAll).
			WithField("view", "too many views")
	}
	return nil
}

// Finds reports whether a view exists for the caller, who may delete it where withDelete is set.
func (c Caller) Finds(v *View, withDelete bool) bool {
	return v != nil && (c.Sees(*v) || withDelete && c.Admin)
}

// AdmitDelete refuses to delete a view that is another's.
func (c Caller) AdmitDelete(v View) error {
	if c.Owns(v) || c.Admin {
		return nil
	}
	return failure.Denied(reasonScope, "view %q is shared by %s, who can delete it, and so can admins", v.Name,
		v.CreatedBy).WithField("name", "of another owner")
}
