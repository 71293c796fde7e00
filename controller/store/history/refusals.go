package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// CountRefusals implements auth.RefusalSource. The counts are outside the chain until their minute is over.
func (s *Store) CountRefusals(ctx context.Context, b access.RefusalBatch) error {
	p := dbsqlc.CountRefusalsParams{WriterID: b.Writer, Batch: b.Number}
	for _, r := range b.Refusals {
		p.Actors = append(p.Actors, r.Actor)
		p.Addresses = append(p.Addresses, r.Address)
		p.Methods = append(p.Methods, r.Method)
		p.MachineIds = append(p.MachineIds, r.Machine)
		p.Counts = append(p.Counts, r.Count)
	}
	return pgtx.Wrap(s.db.Q.CountRefusals(ctx, p), "count refusals")
}

// ChainRefusals implements auth.RefusalSource. One transaction takes and writes a minute that is over, so that only one
// of several controllers writes it, and only once.
func (s *Store) ChainRefusals(ctx context.Context) error {
	due, err := s.db.Q.RefusalsAreDue(ctx)
	if err != nil || !due {
		return pgtx.Wrap(err, "look for refusals")
	}
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error { return chainRefusals(ctx, q) })
	return pgtx.Wrap(err, "write refusals to the audit log")
}

func chainRefusals(ctx context.Context, q *dbsqlc.Queries) error {
	if err := q.LockRefusals(ctx); err != nil {
		return fmt.Errorf("lock refusals: %w", err)
	}
	before, err := q.EndRefusalMinutes(ctx)
	if err != nil {
		return fmt.Errorf("end minutes: %w", err)
	}
	rows, err := q.TakeRefusals(ctx, before)
	if err != nil {
		return fmt.Errorf("take refusals: %w", err)
	}
	slices.SortFunc(rows, func(a, b dbsqlc.RefusalCount) int {
		return cmp.Or(a.Minute.Compare(b.Minute), cmp.Compare(a.Actor, b.Actor), cmp.Compare(a.Address, b.Address),
			cmp.Compare(a.Method, b.Method))
	})
	p := dbsqlc.RecordAuditsParams{}
	for _, r := range rows {
		data := map[string]string{"method": r.Method, "count": strconv.FormatInt(r.Count, 10), SourceAddress: r.Address}
		if r.MachineID != "" {
			data["machine_id"] = r.MachineID
		}
		raw, err := pgtx.JSONMap(data)
		if err != nil {
			return err
		}
		p.Tss, p.Actors, p.Verbs = append(p.Tss, r.Minute), append(p.Actors, r.Actor), append(p.Verbs, "REFUSED")
		p.TargetIds, p.RequestIds = append(p.TargetIds, "refusals"), append(p.RequestIds, "")
		p.OperationIds, p.EventDatas = append(p.OperationIds, ""), append(p.EventDatas, raw)
	}
	if err := q.RecordAudits(ctx, p); err != nil {
		return fmt.Errorf("write audit log: %w", err)
	}
	return pgtx.Wrap(q.ForgetRefusalWriters(ctx), "forget writers")
}
