package history

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/timeline"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// AuditFilter narrows the audit log. Empty fields match everything.
type AuditFilter struct {
	TargetID string
	// Actor is a name, or an identity.
	Actor string
	// Verb is a whole verb, and VerbPrefix how it begins.
	Verb, VerbPrefix string
	// Since is the first time, Until the first one after.
	Since, Until time.Time
	// BeforeID is the row before which a page begins.
	BeforeID int64
	Limit    int32
}

// ListAudit reads the audit log, newest first, from a row on.
func (s *Store) ListAudit(ctx context.Context, f AuditFilter) ([]*baremetalv1.AuditEntry, error) {
	rows, err := s.db.CustomPlanLists(ctx).ListAudit(ctx, dbsqlc.ListAuditParams{
		TargetID: f.TargetID, Actor: f.Actor, Verb: f.Verb, VerbPrefix: f.VerbPrefix,
		Since: pgtx.TimePtr(f.Since), Until: pgtx.TimePtr(f.Until),
		BeforeID: f.BeforeID, PageSize: f.Limit,
	})
	if err != nil {
		return nil, fmt.Errorf("list audit log: %w", err)
	}
	out := make([]*baremetalv1.AuditEntry, 0, len(rows))
	for _, r := range rows {
		out = append(out, &baremetalv1.AuditEntry{
			AuditId: r.AuditID, Ts: convert.Timestamp(r.Ts), Actor: r.Actor, Verb: r.Verb, TargetId: r.TargetID,
			RequestId: r.RequestID,
			EventData: r.EventData, OperationId: r.OperationID,
		})
	}
	return out, nil
}

// ScrubAudit empties the personal data of a target's audit rows and returns their number.
func (s *Store) ScrubAudit(ctx context.Context, targetID, actor string, now time.Time) (int64, error) {
	var n int64
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		through, err := q.NewestAudit(ctx, targetID)
		if err != nil {
			return fmt.Errorf("read audit log: %w", err)
		}
		n, err = Scrub(ctx, q, AuditEntry{Actor: actor, Verb: timeline.ScrubAudit, Target: targetID}, "", through, now)
		return err
	})
	return n, err
}

// Scrub writes the audit row e, which announces that data is emptied, and then empties it: that of the rows with e's
// target up to the number through, of one verb, or of all where verb is empty. Nothing else empties data. It returns
// the number of rows.
func Scrub(
	ctx context.Context, q *dbsqlc.Queries, e AuditEntry, verb string, through int64, now time.Time,
) (int64, error) {
	p, err := e.Params(ctx, now)
	if err != nil {
		return 0, err
	}
	if err := q.AnnounceScrub(ctx, dbsqlc.AnnounceScrubParams{Ts: now, Actor: e.Actor, Verb: e.Verb, TargetID: e.Target,
		EventData: p.EventData, ScrubVerb: &verb, ScrubThrough: &through}); err != nil {
		return 0, fmt.Errorf("announce scrub: %w", err)
	}
	n, err := q.ScrubAudit(ctx, dbsqlc.ScrubAuditParams{TargetID: e.Target, ScrubThrough: through, ScrubVerb: verb})
	return n, pgtx.Wrap(err, "scrub audit log")
}

// AuditEntry is a user's action.
type AuditEntry struct {
	Actor, Verb, Target, Request, Operation string
	// Comment is free text of a person and goes into event_data.
	Comment string
	Data    map[string]string
}

func Audit(ctx context.Context, q *dbsqlc.Queries, e AuditEntry, now time.Time) error {
	p, err := e.Params(ctx, now)
	if err != nil {
		return err
	}
	return pgtx.Wrap(q.RecordAudit(ctx, dbsqlc.RecordAuditParams(p)), "write audit log")
}

// AuditID is audit for an entry that others point to.
func AuditID(ctx context.Context, q *dbsqlc.Queries, e AuditEntry, now time.Time) (int64, error) {
	p, err := e.Params(ctx, now)
	if err != nil {
		return 0, err
	}
	id, err := q.InsertAudit(ctx, p)
	return id, pgtx.Wrap(err, "write audit log")
}

// The keys of event_data for the address of the caller, a person's identity at the provider, and the identity of a
// caller beside its name. A person's identity is an issuer and a subject, and a token's is its maker's.
const (
	SourceAddress = "source_address"
	Subject       = "subject"
	Identity      = "identity"
)

func (e AuditEntry) Params(ctx context.Context, now time.Time) (dbsqlc.InsertAuditParams, error) {
	data := map[string]string{}
	if from := call.Address(ctx); from != "" {
		data[SourceAddress] = from
	}
	c, _ := call.Caller(ctx)
	if c.Person != nil {
		data[Subject] = c.Person.Subject
	}
	if id := c.Identity(); id != (access.Caller{Name: c.Name}).Identity() {
		data[Identity] = id
	}
	for k, v := range e.Data {
		data[k] = v
	}
	if e.Comment != "" {
		data["comment"] = e.Comment
	}
	raw, err := pgtx.JSONMap(data)
	return dbsqlc.InsertAuditParams{
		Ts: now, Actor: e.Actor, Verb: e.Verb, TargetID: e.Target, RequestID: e.Request, OperationID: e.Operation,
		EventData: raw,
	}, err
}

// System is the actor of what the controller does by itself.
const System = "system"
