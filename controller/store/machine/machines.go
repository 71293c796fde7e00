package machine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	machinerules "github.com/ingot-metal/ingot/controller/domain/machine"
	"github.com/ingot-metal/ingot/controller/fieldmask"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// WithMachine runs fn with the machine locked, and returns the machine as it is afterwards.
func (s *Store) WithMachine(
	ctx context.Context, id string, fn func(q *dbsqlc.Queries, m dbsqlc.Machine) error,
) (*baremetalv1.Machine, error) {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := q.LockMachine(ctx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return convert.MachineNotFound(id)
		}
		if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		return fn(q, m)
	})
	if err != nil {
		return nil, err
	}
	return s.Machine(ctx, id, "")
}

// Register adds a machine, or updates what the message sets of a known one. MAC addresses must be normalized. With
// CreateOnly a known one is refused, unless the same request has made it.
func (s *Store) Register(
	ctx context.Context, m *baremetalv1.Machine, actor string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.Machine, error) {
	m = proto.Clone(m).(*baremetalv1.Machine)
	if m.GetMachineId() == "" {
		m.MachineId = ids.New(ids.Machine)
	}
	c := pgtx.ConditionsOf(append([]pgtx.WriteOption{pgtx.ExpectRead(m.GetVersion())}, opts...))
	var written *baremetalv1.Machine
	err := s.writeTx(ctx, c, func(q *dbsqlc.Queries) error {
		old, err := q.LockMachine(ctx, m.GetMachineId())
		if errors.Is(err, pgx.ErrNoRows) {
			if err := c.Check("machine "+m.GetMachineId(), MachineExists, pgtx.Stored{}); err != nil {
				return err
			}
			written = m
			return s.InsertMachine(ctx, q, m, c.RequestID, actor, now)
		}
		if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		if err := mayOperate(ctx, old); err != nil {
			return err
		}
		if c.CreateOnly && c.RequestID != "" && c.RequestID == old.RegisteredByRequest && old.DeletedAt == nil {
			return nil
		}
		written, err = s.updateMachine(ctx, q, old, m, c, actor, now)
		return err
	})
	if pgtx.UniqueViolation(err, "machines_pkey") {
		// Two first registrations at once: the other one won, this one is an update.
		return s.Register(ctx, m, actor, now, opts...)
	}
	if err := ConflictOf(err, m); err != nil {
		return nil, fmt.Errorf("register machine: %w", err)
	}
	if c.ValidateOnly && written != nil {
		return written, nil
	}
	return s.GetMachine(ctx, m.GetMachineId(), "")
}

// writeTx is InTx of a client's write, which is taken back where it is only to be checked.
func (s *Store) writeTx(ctx context.Context, c pgtx.Conditions, fn func(*dbsqlc.Queries) error) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := fn(q); err != nil || !c.ValidateOnly {
			return err
		}
		return pgtx.ErrValidated
	})
	if errors.Is(err, pgtx.ErrValidated) {
		return nil
	}
	return err
}

const MachineExists = "MACHINE_EXISTS"

func ConflictOf(err error, m *baremetalv1.Machine) error {
	switch {
	case pgtx.UniqueViolation(err, "machines_external_id_key"):
		return failure.AlreadyExists("EXTERNAL_ID_IN_USE", "external_id %q belongs to another machine",
			m.GetSpec().GetExternalId()).WithField("machine.spec.external_id", "taken by another machine")
	case pgtx.UniqueViolation(err, "machine_macs_pkey"):
		return failure.AlreadyExists("MAC_ADDRESS_IN_USE", "a MAC address belongs to another machine").
			WithField("machine.spec.mac_addresses", "taken by another machine")
	}
	return err
}

func (s *Store) InsertMachine(
	ctx context.Context, q *dbsqlc.Queries, m *baremetalv1.Machine, requestID, actor string, now time.Time,
) error {
	if err := s.MayWriteFields(ctx, q, nil, m); err != nil {
		return err
	}
	labels, spec, err := machineDocs(m)
	if err != nil {
		return err
	}
	err = q.InsertMachine(ctx, dbsqlc.InsertMachineParams{
		MachineID: m.GetMachineId(), ExternalID: pgtx.StrPtr(m.GetSpec().GetExternalId()), Labels: labels, Spec: spec,
		Now:                 now,
		RegisteredByRequest: requestID,
	})
	if err != nil {
		return fmt.Errorf("insert machine: %w", err)
	}
	if err := q.InsertSite(ctx, m.GetSpec().GetSite()); err != nil {
		return fmt.Errorf("insert site: %w", err)
	}
	if err := s.setMacs(ctx, q, m); err != nil {
		return err
	}
	if err := takeBMC(ctx, q, m); err != nil {
		return err
	}
	if err := mayOffer(ctx, nil, m.GetLabels()); err != nil {
		return err
	}
	return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "REGISTER", Target: m.GetMachineId()}, now)
}

// defaultSite is the site of machines whose spec names none.
const defaultSite = "default"

// machineDocs fills the spec's defaults and serializes a client's machine.
func machineDocs(m *baremetalv1.Machine) (labels, spec []byte, err error) {
	if m.GetSpec() == nil {
		m.Spec = &baremetalv1.MachineSpec{}
	}
	if m.GetSpec().GetProvider() == "" {
		m.Spec.Provider = defaultProvider
	}
	if m.GetSpec().GetSite() == "" {
		m.Spec.Site = defaultSite
	}
	if labels, err = pgtx.JSONMap(m.GetLabels()); err != nil {
		return nil, nil, err
	}
	spec, err = convert.SpecToJSON(m.GetSpec())
	return labels, spec, err
}

// Update changes labels and spec by the rules of package fieldmask.
func (s *Store) Update(
	ctx context.Context, m *baremetalv1.Machine, actor string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.Machine, error) {
	m = proto.Clone(m).(*baremetalv1.Machine)
	c := pgtx.ConditionsOf(append([]pgtx.WriteOption{pgtx.ExpectRead(m.GetVersion())}, opts...))
	var written *baremetalv1.Machine
	err := s.writeTx(ctx, c, func(q *dbsqlc.Queries) error {
		old, err := q.LockMachine(ctx, m.GetMachineId())
		if errors.Is(err, pgx.ErrNoRows) {
			return convert.MachineNotFound(m.GetMachineId())
		}
		if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		if err := mayOperate(ctx, old); err != nil {
			return err
		}
		written, err = s.updateMachine(ctx, q, old, m, c, actor, now)
		return err
	})
	if err := ConflictOf(err, m); err != nil {
		return nil, fmt.Errorf("update machine: %w", err)
	}
	if c.ValidateOnly {
		return written, nil
	}
	return s.GetMachine(ctx, m.GetMachineId(), "")
}

// merged returns the stored machine with a client's changes.
func merged(old dbsqlc.Machine, m *baremetalv1.Machine, mask []string) (*baremetalv1.Machine, error) {
	spec, err := convert.SpecFromJSON(old.Spec)
	if err != nil {
		return nil, err
	}
	before := &baremetalv1.Machine{MachineId: old.MachineID, Labels: convert.JSONToMap(old.Labels), Spec: spec}
	out := fieldmask.Apply(before, m, mask)
	id, err := machinerules.ExternalID(pgtx.StrVal(old.ExternalID), out.GetSpec().GetExternalId(),
		slices.Contains(mask, "spec.external_id"))
	if err != nil {
		return nil, err
	}
	if id != out.GetSpec().GetExternalId() {
		out.Spec.ExternalId = id // a mask that names all of spec keeps what cannot change
	}
	return out, nil
}

// SetFields stores the labels and the spec of a locked machine, if the caller may change them so.
func (s *Store) SetFields(ctx context.Context, q *dbsqlc.Queries, old dbsqlc.Machine, m *baremetalv1.Machine) error {
	if err := s.MayWriteFields(ctx, q, &old, m); err != nil {
		return err
	}
	labels, spec, err := machineDocs(m)
	if err != nil {
		return err
	}
	err = q.UpdateMachineSpec(ctx, dbsqlc.UpdateMachineSpecParams{
		MachineID: old.MachineID, ExternalID: pgtx.StrPtr(m.GetSpec().GetExternalId()), Labels: labels, Spec: spec,
	})
	if err != nil {
		return fmt.Errorf("update machine: %w", err)
	}
	return nil
}

func (s *Store) updateMachine(
	ctx context.Context, q *dbsqlc.Queries, old dbsqlc.Machine, m *baremetalv1.Machine, c pgtx.Conditions, actor string,
	now time.Time,
) (*baremetalv1.Machine, error) {
	if err := machinerules.MayUpdate(old.MachineID, old.DeletedAt != nil); err != nil {
		return nil, err
	}
	if err := c.Check("machine "+old.MachineID, MachineExists,
		pgtx.Stored{Exists: true, Version: old.Version}); err != nil {
		return nil, err
	}
	m, err := merged(old, m, c.Mask)
	if err != nil {
		return nil, err
	}
	before, err := convert.SpecFromJSON(old.Spec)
	if err != nil {
		return nil, err
	}
	if err := s.SetFields(ctx, q, old, m); err != nil {
		return nil, err
	}
	if err := q.InsertSite(ctx, m.GetSpec().GetSite()); err != nil {
		return nil, fmt.Errorf("insert site: %w", err)
	}
	if err := s.setMacs(ctx, q, m); err != nil {
		return nil, err
	}
	if before.GetBmcEndpoint() != m.GetSpec().GetBmcEndpoint() || before.GetSite() != m.GetSpec().GetSite() {
		if err := takeBMC(ctx, q, m); err != nil {
			return nil, err
		}
	}
	if err := mayOffer(ctx, convert.JSONToMap(old.Labels), m.GetLabels()); err != nil {
		return nil, err
	}
	if before.GetBmcEndpoint() != m.GetSpec().GetBmcEndpoint() {
		// Another BMC has said nothing yet.
		if err := setFaults(ctx, q, old.MachineID, "", now); err != nil {
			return nil, err
		}
	}
	return m, history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "UPDATE", Target: old.MachineID,
		Data: changes(&baremetalv1.Machine{Labels: convert.JSONToMap(old.Labels), Spec: before}, m)}, now)
}

// GetMachine finds a machine by id, or by external id when id is empty. A deleted one is not found: only reconciles
// show tombstones.
func (s *Store) GetMachine(ctx context.Context, id, externalID string) (*baremetalv1.Machine, error) {
	m, err := s.Machine(ctx, id, externalID)
	if err == nil && m.GetDeletedAt() != nil {
		return nil, failure.NotFound("MACHINE_NOT_FOUND", "machine %s was deleted; its history is kept: ingot timeline %s",
			id, id).
			WithField("machine_id", "deleted")
	}
	return m, err
}

// KnownMachine returns a machine or its tombstone: the record of a deleted machine can be read.
func (s *Store) KnownMachine(ctx context.Context, id string) (*baremetalv1.Machine, error) {
	return s.Machine(ctx, id, "")
}

// Machine is GetMachine that finds tombstones by their id too.
func (s *Store) Machine(ctx context.Context, id, externalID string) (*baremetalv1.Machine, error) {
	var row dbsqlc.Machine
	var err error
	if id != "" {
		row, err = s.db.Q.GetMachine(ctx, id)
	} else {
		row, err = s.db.Q.GetMachineByExternalID(ctx, &externalID)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, convert.MachineNotFound(id + externalID)
	}
	if err != nil {
		return nil, fmt.Errorf("read machine: %w", err)
	}
	all, err := s.MachineMessages(ctx, []dbsqlc.Machine{row})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func (s *Store) MachineMessages(ctx context.Context, rows []dbsqlc.Machine) ([]*baremetalv1.Machine, error) {
	return s.present(ctx, rows, false)
}

// MachineFilter narrows a walk. Empty fields match everything.
type MachineFilter struct {
	MachineID, Phase, NodeState, Provider, Site, Region string
	// Rack is that of label.RackOf.
	Rack   string
	Labels map[string]string
	// Spec matches fields of the spec by proto name, such as group.
	Spec map[string]string
	// MachineIDs must hold the machine's id where it is not nil.
	MachineIDs []string
	// Patterns must match, or must not.
	Patterns []Pattern
	// NodeStates must hold the node's state where it is not empty; NotNodeStates must not.
	NodeStates, NotNodeStates []string
	// Busy is "true" where an operation or a workflow is active, "false", or empty for either. Operating is the same of
	// operations alone, Fenced of commands whose outcome is unknown.
	Busy, Operating, Fenced string
	// With and Without are conditions that must be true, or must not.
	With, Without []string
	// Unknown and NotUnknown are conditions that must be unknown, or must not.
	Unknown, NotUnknown []string
	// NotObserved is "true" for machines that need an operator only because nothing observes them, "false" for all others,
	// or empty for either.
	NotObserved string
	AfterID     string
	// Order is that of the walk: its zero value is that of machine_id, byte by byte. After holds AfterID and what else the
	// order compares.
	Order Order
	After Place
	Limit int32
	// Sealed makes the read return machines of which only the id can be read before they have gone over the wire.
	Sealed bool
}

// settledStates are the node states whose machines are never NOT_OBSERVED.
var settledStates = func() []string {
	out := []string{}
	for _, state := range fleet.Settles() {
		out = append(out, string(state))
	}
	return out
}()

// Pattern is a regular expression over one text: machine_id, rack, labels.KEY, or a field of the spec by proto name. A
// text that is not set matches none.
type Pattern struct {
	Key, Regexp string
	Not         bool
}

// Regexps are the keys and expressions of patterns that must match, or that must not.
func (f MachineFilter) Regexps(not bool) (keys, regexps []string) {
	keys, regexps = []string{}, []string{}
	for _, p := range f.Patterns {
		if p.Not == not {
			keys, regexps = append(keys, p.Key), append(regexps, p.Regexp)
		}
	}
	return keys, regexps
}

// matchesAll reports whether nothing is asked for.
func (f MachineFilter) matchesAll() bool {
	return f.MachineID+f.Phase+f.NodeState+f.Provider+f.Site+f.Region+f.Rack+f.Busy+f.Operating+f.Fenced == "" &&
		f.MachineIDs == nil && len(f.Patterns) == 0 &&
		f.NotObserved == "" && len(f.Labels)+len(f.Spec)+len(f.With)+len(f.Without)+len(f.Unknown)+len(f.NotUnknown)+
		len(f.NodeStates)+len(f.NotNodeStates) == 0
}

// WalkMachines reads machines by id, tombstones left out.
func (s *Store) WalkMachines(ctx context.Context, f MachineFilter) ([]*baremetalv1.Machine, error) {
	rows, err := s.WalkRows(ctx, f)
	if err != nil {
		return nil, err
	}
	return s.present(ctx, rows, f.Sealed)
}

func (s *Store) WalkRows(ctx context.Context, f MachineFilter) ([]dbsqlc.Machine, error) {
	if f.matchesAll() && f.Order.By == "" {
		rows, err := s.db.Lists(ctx).WalkAllMachines(ctx, dbsqlc.WalkAllMachinesParams{AfterID: f.AfterID, PageSize: f.Limit})
		if err != nil {
			return nil, fmt.Errorf("walk machines: %w", err)
		}
		return rows, nil
	}
	labels, err := pgtx.JSONMap(f.Labels)
	if err != nil {
		return nil, err
	}
	spec, err := pgtx.JSONMap(f.Spec)
	if err != nil {
		return nil, err
	}
	among, none, err := s.candidates(ctx, f)
	if err != nil || none {
		return nil, err
	}
	keys, regexps := f.Regexps(false)
	notKeys, notRegexps := f.Regexps(true)
	rows, err := s.db.CustomPlanLists(ctx).WalkMachines(ctx, dbsqlc.WalkMachinesParams{
		AfterID: f.AfterID, MachineID: f.MachineID, Phase: f.Phase, NodeState: f.NodeState, Provider: f.Provider,
		Site:   f.Site,
		Region: f.Region, Rack: f.Rack, Labels: labels, Spec: spec, Busy: f.Busy,
		Operating: f.Operating, Fenced: f.Fenced, NodeStates: pgtx.NonNil(f.NodeStates),
		NotNodeStates: pgtx.NonNil(f.NotNodeStates), Among: among, WithConditions: pgtx.NonNil(f.With),
		WithoutConditions: pgtx.NonNil(f.Without), PageSize: f.Limit,
		UnknownConditions: pgtx.NonNil(f.Unknown), WithoutUnknown: pgtx.NonNil(f.NotUnknown),
		NotObserved: f.NotObserved, SettledStates: settledStates,
		Keys: keys, Regexps: regexps, NotKeys: notKeys, NotRegexps: notRegexps,
		OrderBy: f.Order.By, Descending: f.Order.Desc, AfterTime: f.After.UpdatedAt,
		AfterName: f.After.Name,
	})
	if err != nil {
		return nil, fmt.Errorf("walk machines: %w", err)
	}
	return rows, nil
}

// fewCandidates is how many machines with a condition are named one by one. Where there are more, a walk meets them
// soon.
const fewCandidates = 2000

// candidates returns the machines of which the first wanted condition is true, where they are few. none reports whether
// there are none at all.
func (s *Store) candidates(ctx context.Context, f MachineFilter) (among []string, none bool, err error) {
	if f.MachineIDs != nil {
		return f.MachineIDs, len(f.MachineIDs) == 0, nil
	}
	if len(f.With) == 0 || pgtx.Counting(ctx) != nil {
		return []string{}, false, nil
	}
	after := f.AfterID
	if f.Order.By != "" {
		after = "" // which is behind machines of any id
	}
	among, err = s.db.CustomPlan().MachinesWithCondition(ctx, dbsqlc.MachinesWithConditionParams{
		Type: f.With[0], AfterID: after, MaxRows: fewCandidates + 1,
	})
	if err != nil {
		return nil, false, fmt.Errorf("read machines with condition %s: %w", f.With[0], err)
	}
	if len(among) > fewCandidates {
		return []string{}, false, nil
	}
	return among, len(among) == 0, nil
}

// NodeHistory reads the changes of a machine's node state, newest first, and how many there are.
func (s *Store) NodeHistory(
	ctx context.Context, machineID string, limit, offset int32,
) ([]*baremetalv1.NodeStateLog, int32, error) {
	rows, err := s.db.Q.NodeHistory(ctx, dbsqlc.NodeHistoryParams{MachineID: machineID, PageSize: limit, Skip: offset})
	if err != nil {
		return nil, 0, fmt.Errorf("read node history: %w", err)
	}
	total, err := s.db.Q.CountNodeHistory(ctx, machineID)
	if err != nil {
		return nil, 0, fmt.Errorf("count node history: %w", err)
	}
	out := make([]*baremetalv1.NodeStateLog, 0, len(rows))
	for _, r := range rows {
		out = append(out, &baremetalv1.NodeStateLog{
			Id: fmt.Sprint(r.ID), Uuid: lineUUID(r.ID), FromState: convert.NodeStateMessage(r.FromState),
			ToState:     convert.NodeStateMessage(r.ToState),
			TriggeredBy: r.TriggeredBy, UserId: r.UserID, Comment: r.Remark, Metadata: convert.JSONToMap(r.Metadata),
			CreatedAt: convert.Timestamp(r.CreatedAt),
		})
	}
	return out, int32(total), nil
}

// lineUUID names a line of the log of changes: a UUID of version 8 (RFC 9562, 5.8) that is made of the line's number
// alone.
func lineUUID(id int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "ingot node_state_log %d", id))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

func LockMachine(ctx context.Context, q *dbsqlc.Queries, id string) (dbsqlc.Machine, error) {
	m, err := q.LockMachine(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, convert.MachineNotFound(id)
	}
	if err != nil {
		return m, fmt.Errorf("lock machine: %w", err)
	}
	return m, nil
}
