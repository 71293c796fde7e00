package machine

import (
	"context"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/domain/membership"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
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

// writerOf returns the caller of a write; nil for work of the controller's own, which may write every field.
func writerOf(ctx context.Context) (*membership.Writer, error) {
	c, ok := call.Caller(ctx)
	if !ok {
		return nil, nil
	}
	by, err := membership.WriterOf(c)
	return &by, err
}

// MayWriteFields refuses a write of a machine's fields that the caller has no right to. Without old the machine is new.
// What depends on fields of machines stays as it is until the transaction ends.
func (s *Store) MayWriteFields(
	ctx context.Context, q *dbsqlc.Queries, old *dbsqlc.Machine, m *baremetalv1.Machine,
) error {
	by, err := writerOf(ctx)
	if err != nil || by == nil {
		return err
	}
	w, err := writeOf(*by, old, m)
	if err != nil {
		return err
	}
	if w.AsksUses() {
		if w.Uses, err = s.fieldUses(ctx, q); err != nil {
			return err
		}
	}
	return w.Refuse()
}

// writeOf is the write of a machine over the stored one, without what depends on its fields.
func writeOf(by membership.Writer, old *dbsqlc.Machine, m *baremetalv1.Machine) (membership.Write, error) {
	w := membership.Write{By: by, After: FieldsOf(m), Becomes: targetOf(m.GetSpec()),
		Was: targetOf(&baremetalv1.MachineSpec{Site: m.GetSpec().GetSite()})}
	if old == nil {
		return w, nil
	}
	stored, err := StoredFields(*old)
	if err != nil {
		return w, err
	}
	spec, err := convert.SpecFromJSON(old.Spec)
	if err != nil {
		return w, err
	}
	w.Before, w.After.Image, w.Was = &stored, stored.Image, targetOf(spec)
	w.Enrolled = old.AgentID != nil || old.TpmKeyDigest != nil || old.IdentityLevel != ""
	return w, nil
}

func targetOf(spec *baremetalv1.MachineSpec) membership.Target {
	return membership.Target{
		BMCEndpoint: spec.GetBmcEndpoint(), BMCCredentials: spec.GetBmcCredentialsRef(), SSHEndpoint: spec.GetSshEndpoint(),
		SSHCredentials: spec.GetSshCredentialsRef(), SSHHostKeys: spec.GetSshHostKeys(),
		Site: pgtx.OrText(spec.GetSite(), defaultSite), MACs: spec.GetMacAddresses(),
	}
}

// mayOffer refuses a change of the label that offers the machine to a tool. Work of the controller's own may.
func mayOffer(ctx context.Context, old, wanted map[string]string) error {
	by, err := writerOf(ctx)
	if err != nil || by == nil {
		return err
	}
	return by.MayOffer(old, wanted)
}

// mayOperate refuses a call about a stored machine, or its tombstone, to callers whose roles are for other machines.
func mayOperate(ctx context.Context, row dbsqlc.Machine) error {
	by, err := writerOf(ctx)
	if err != nil || by == nil {
		return err
	}
	f, err := StoredFields(row)
	if err != nil {
		return err
	}
	return by.MayOperate(f)
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
