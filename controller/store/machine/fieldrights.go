package machine

import (
	"context"
	"fmt"
	"slices"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/domain/membership"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

// defaultProvider is the provider of machines whose spec names none.
const defaultProvider = "agent"

// FieldsOf returns the fields of a machine by which selections, budgets and identity levels find it, with the defaults
// of a registration. The digest of its image, which no client writes, is the caller's to add.
func FieldsOf(m *baremetalv1.Machine) membership.Fields {
	s := m.GetSpec()
	return membership.Fields{
		MachineID: m.GetMachineId(), Labels: m.GetLabels(),
		Spec: map[string]string{
			"provider": pgtx.OrText(s.GetProvider(), defaultProvider), "site": pgtx.OrText(s.GetSite(), defaultSite),
			"region": s.GetRegion(), "rack": s.GetRack(), "group": s.GetGroup(), "location": s.GetLocation(),
			"serial": s.GetSerial(), "cluster": s.GetTargetClusterRef(),
		},
	}
}

// StoredFields returns the fields of a stored machine.
func StoredFields(row dbsqlc.Machine) (membership.Fields, error) {
	spec, err := convert.SpecFromJSON(row.Spec)
	if err != nil {
		return membership.Fields{}, err
	}
	f := FieldsOf(&baremetalv1.Machine{MachineId: row.MachineID, Labels: convert.JSONToMap(row.Labels), Spec: spec})
	f.Image = row.OsImageDigest
	return f, nil
}

// CallerOf returns the roles of a call's caller. It reports false for work of the controller's own, which has no
// caller and may write every field.
func CallerOf(ctx context.Context) (membership.Caller, bool, error) {
	c, ok := auth.CallerFrom(ctx)
	if !ok {
		return nil, false, nil
	}
	if len(c.Grants) == 0 {
		return membership.Caller{{Level: levelOf(c.Scope)}}, true, nil
	}
	var out membership.Caller
	for _, g := range c.Grants {
		terms, err := membership.ParseSelection(g.Selection)
		if err != nil {
			return nil, false, err
		}
		level := levelOf(g.Role.Scope())
		if !membership.OfFields(terms) {
			level = min(level, membership.Operate) // a line of the token file may name a state, which work changes
		}
		out = append(out, membership.Grant{Level: level, Terms: terms})
	}
	return out, true, nil
}

func levelOf(s auth.Scope) membership.Level {
	switch {
	case s.Covers(auth.ScopeAdmin):
		return membership.Admin
	case s.Covers(auth.ScopeOperate):
		return membership.Operate
	case s.Covers(auth.ScopeRead):
		return membership.Read
	}
	return membership.None
}

// MayWriteFields refuses a write of a machine's fields that the caller has no right to. Without old the machine is new.
// What depends on fields of machines stays as it is until the transaction ends.
func (s *Store) MayWriteFields(
	ctx context.Context, q *dbsqlc.Queries, old *dbsqlc.Machine, m *baremetalv1.Machine,
) error {
	caller, ok, err := CallerOf(ctx)
	if err != nil || !ok || caller.Everywhere() >= membership.Admin {
		return err
	}
	after := FieldsOf(m)
	var before *membership.Fields
	if old != nil {
		stored, err := StoredFields(*old)
		if err != nil {
			return err
		}
		before, after.Image = &stored, stored.Image
	}
	var uses []membership.Use
	if before == nil || !before.Equal(after) {
		if uses, err = s.fieldUses(ctx, q); err != nil {
			return err
		}
	}
	if no := membership.Decide(caller, before, after, uses); no != nil {
		return refusal(ctx, caller, no)
	}
	return mayAim(ctx, caller, old, m)
}

// mayOperate refuses a call about a stored machine, or its tombstone, to callers whose roles are for other machines.
func mayOperate(ctx context.Context, row dbsqlc.Machine) error {
	caller, ok, err := CallerOf(ctx)
	if err != nil || !ok {
		return err
	}
	f, err := StoredFields(row)
	if err == nil && caller.LevelAt(f) < membership.Operate {
		err = auth.OutsideSelection(ctx)
	}
	return err
}

// fieldUses returns everything that depends on fields of machines. New uses wait until the transaction ends.
func (s *Store) fieldUses(ctx context.Context, q *dbsqlc.Queries) ([]membership.Use, error) {
	if err := q.ShareFieldUses(ctx); err != nil {
		return nil, fmt.Errorf("lock the uses of fields: %w", err)
	}
	rows, err := q.FieldUses(ctx, s.db.Now())
	if err != nil {
		return nil, fmt.Errorf("read the uses of fields: %w", err)
	}
	tokens, _ := s.FileTokens()
	for _, t := range tokens {
		if t.Selection != "" {
			rows = append(rows, dbsqlc.FieldUsesRow{Kind: string(membership.Token), Name: t.Name, Filter: t.Selection})
		}
	}
	uses := make([]membership.Use, 0, len(rows))
	for _, r := range rows {
		u, err := useOf(r)
		if err != nil {
			return nil, err
		}
		uses = append(uses, u)
	}
	return uses, nil
}

func useOf(r dbsqlc.FieldUsesRow) (u membership.Use, err error) {
	u = membership.Use{Kind: membership.Kind(r.Kind), Name: r.Name, Counted: r.Counted, Key: r.Key, Value: r.Value}
	if u.Kind == membership.Budget {
		u.Key = budget.FilterKey(r.Key)
	}
	u.Terms, err = membership.ParseSelection(r.Filter)
	return u, err
}

// refusal is the error of a refused write. It names what depends on the field as far as the caller may read it: roles
// and tokens are for admins to read, the rest for callers with a role on all machines.
func refusal(ctx context.Context, caller membership.Caller, no *membership.Refusal) error {
	if no.Outside {
		return auth.OutsideSelection(ctx)
	}
	use := "a " + string(no.Use.Kind)
	if no.Use.Kind == membership.ApprovalPolicy || no.Use.Kind == membership.IdentityLevel {
		use = "an " + string(no.Use.Kind)
	}
	listed := no.Use.Kind != membership.Role && no.Use.Kind != membership.Token
	meta := map[string]string{"used_by": string(no.Use.Kind)}
	if listed && caller.Everywhere() >= membership.Read {
		use = string(no.Use.Kind) + " " + no.Use.Name
		meta["used_by_name"] = no.Use.Name
	}
	if no.Key == "" {
		return withMeta(failure.Denied("FIELD_IN_USE",
			"a machine may be registered only by an admin of all machines: their number is used by %s", use).
			WithField("machine", "needs scope admin"), meta)
	}
	meta["key"] = no.Key
	return withMeta(failure.Denied(
		"FIELD_IN_USE",
		"the field %s may be changed only by an admin of the machine, as it is and as it would be: it is used by %s",
		no.Key,
		use,
	).
		WithField(fieldPath(no.Key), "needs scope admin"), meta)
}

func withMeta(err *failure.Error, meta map[string]string) error {
	for key, value := range meta {
		err = err.WithMeta(key, value)
	}
	return err
}

// fieldPath returns the field of a request that a filter's key stands for.
func fieldPath(key string) string {
	switch {
	case key == "cluster":
		return "machine.spec.target_cluster_ref"
	case slices.Contains([]string{"provider", "site", "region", "rack", "group", "location", "serial"}, key):
		return "machine.spec." + key
	}
	return "machine." + key
}
