package site

import (
	"context"
	"fmt"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// addAgentless adds the systems that are to phone home, and the machines without an agent, which are to be probed.
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
