package credential

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// MAASRegion is a region as it is stored: only who has the key can read its API key.
type MAASRegion struct {
	Ref, Endpoint  string
	Sealed, CA     []byte
	UserData       string
	RetainMachines bool
	Version        int64
	UpdatedAt      time.Time
}

func maasRegion(r dbsqlc.MaasRegion) MAASRegion {
	return MAASRegion{
		Ref: r.RegionRef, Endpoint: r.Endpoint, Sealed: r.Sealed, CA: r.CaPem, UserData: r.UserData,
		RetainMachines: r.RetainMachines,
		Version:        r.Version, UpdatedAt: r.UpdatedAt,
	}
}

// SetMAASRegion stores a region under a new version, and notifies the sites whose machines it drives.
func (s *Store) SetMAASRegion(
	ctx context.Context, m MAASRegion, actor string, now time.Time, opts ...pgtx.WriteOption,
) (MAASRegion, error) {
	var row dbsqlc.MaasRegion
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		row, err = q.PutMAASRegion(ctx, dbsqlc.PutMAASRegionParams{
			RegionRef: m.Ref, Endpoint: m.Endpoint, Sealed: m.Sealed, CaPem: pgtx.NotNil(m.CA), UserData: m.UserData,
			RetainMachines: m.RetainMachines, Now: now,
		})
		if err != nil {
			return fmt.Errorf("store region: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Replacing("MAAS region "+m.Ref, row.Version); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "SET_MAAS_REGION", Target: m.Ref, Data: map[string]string{"version": fmt.Sprint(row.Version)},
		}, now)
	})
	if err != nil {
		return MAASRegion{}, fmt.Errorf("set MAAS region: %w", err)
	}
	return maasRegion(row), nil
}

// ListMAASRegions reads regions by name.
func (s *Store) ListMAASRegions(ctx context.Context, afterRef string, limit int32) ([]MAASRegion, error) {
	rows, err := s.db.Lists(ctx).ListMAASRegions(ctx, dbsqlc.ListMAASRegionsParams{AfterRef: afterRef, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list MAAS regions: %w", err)
	}
	out := make([]MAASRegion, 0, len(rows))
	for _, r := range rows {
		out = append(out, maasRegion(r))
	}
	return out, nil
}

// DeleteMAASRegion removes a region that no machine names.
func (s *Store) DeleteMAASRegion(
	ctx context.Context, ref, actor string, now time.Time, opts ...pgtx.WriteOption,
) (MAASRegion, error) {
	var row dbsqlc.MaasRegion
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if row, err = q.LockMAASRegion(ctx, ref); errors.Is(err, pgx.ErrNoRows) {
			return credential.MAAS.NotFound(ref)
		}
		if err != nil {
			return fmt.Errorf("lock region: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Check("MAAS region "+ref, pgtx.ResourceExists,
			pgtx.Stored{Exists: true, Version: row.Version}); err != nil {
			return err
		}
		machine, err := q.MachineOfMAASRegion(ctx, ref)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for machines of the region: %w", err)
		}
		if err := credential.MAAS.MayRemove(ref, credential.Use{Machine: machine}); err != nil {
			return err
		}
		if err := q.DeleteMAASRegion(ctx, ref); err != nil {
			return fmt.Errorf("delete region: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "DELETE_MAAS_REGION", Target: ref}, now)
	})
	if err != nil {
		return MAASRegion{}, fmt.Errorf("delete MAAS region: %w", err)
	}
	return maasRegion(row), nil
}

// MAASRegionFor reads what an agent needs to speak to the region of a machine. Only a site agent gets it, for a machine
// of its site that the region drives; the audit log has who got which version.
func (s *Store) MAASRegionFor(ctx context.Context, agentID, machineID, ref string, now time.Time) (MAASRegion, error) {
	var row dbsqlc.MaasRegion
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		r, err := s.request(ctx, q, credential.MAAS, agentID, machineID, ref)
		if err != nil {
			return err
		}
		row, err = q.GetMAASRegion(ctx, ref)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("read region: %w", err)
		}
		if err == nil {
			r.Stored = &credential.Settings{}
		}
		if err := r.Refuse(); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: agentID, Verb: "GET_MAAS_REGION", Target: machineID,
			Data: map[string]string{"region_ref": ref, "version": fmt.Sprint(row.Version)},
		}, now)
	})
	if err != nil {
		return MAASRegion{}, fmt.Errorf("give out a MAAS region: %w", err)
	}
	return maasRegion(row), nil
}
