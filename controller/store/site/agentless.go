package site

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
)

// addAgentless adds the systems that must phone home, and the machines without an agent, which must be probed.
func addAgentless(
	ctx context.Context, q *dbsqlc.Queries, d *fleetv1.SiteDocument, site string, machines []dbsqlc.MachinesOfSiteRow,
) error {
	rows, err := q.PhoneHomesOfSite(ctx, site)
	if err != nil {
		return fmt.Errorf("read who is to phone home: %w", err)
	}
	for _, r := range rows {
		d.PhoneHomes = append(d.PhoneHomes, &fleetv1.PhoneHome{
			MachineId: r.MachineID, OperationId: r.OperationID, SecretSha256: r.SecretSha256,
		})
	}
	for _, m := range machines {
		if m.Agentless {
			d.Probes = append(d.Probes, &fleetv1.ProbeTarget{
				MachineId: m.MachineID, MacAddresses: m.Macs, Address: m.ProbeIp,
			})
		}
	}
	return nil
}

// recordProbes stores whether machines without an agent answer, a machine at a time: each has a row of its own to lock.
func (s *Store) recordProbes(ctx context.Context, r SiteReport, now time.Time) error {
	for _, o := range r.Probes {
		err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
			m, err := q.LockMachine(ctx, o.GetMachineId())
			if errors.Is(err, pgx.ErrNoRows) || err == nil && (m.Site != r.Site || m.DeletedAt != nil || !m.Agentless) {
				return nil // gone, moved, or installed anew since it was asked
			}
			if err != nil {
				return fmt.Errorf("lock machine: %w", err)
			}
			reason := "ProbeAnswered"
			if !o.GetAnswers() {
				reason = "ProbeSilent"
			}
			return nodestate.Reach(ctx, q, m, o.GetAnswers(), reason, now)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
