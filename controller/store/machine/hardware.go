package machine

import (
	"context"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/hardware"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/internal/failure"
)

// mostChanges is how many differences between inventories are reported.
const mostChanges = 1000

// GetInventory reads the newest inventory of a machine, and its differences from the ones before it.
func (s *Store) GetInventory(ctx context.Context, machineID string, before int32) (*baremetalv1.Inventory, error) {
	if _, err := s.GetMachine(ctx, machineID, ""); err != nil {
		return nil, err
	}
	rows, err := s.db.Lists(ctx).NewestInventories(ctx, dbsqlc.NewestInventoriesParams{MachineID: machineID,
		HowMany: before + 1})
	if err != nil {
		return nil, fmt.Errorf("read inventories: %w", err)
	}
	if len(rows) == 0 {
		return nil, failure.NotFound("INVENTORY_NOT_FOUND", "no agent has reported an inventory of machine %s yet", machineID)
	}
	out := &baremetalv1.Inventory{
		MachineId: machineID, Document: rows[0].Document, Hash: rows[0].Hash,
		ReportedAt: convert.Timestamp(rows[0].ReportedAt), Simulated: rows[0].Simulated,
	}
	for i, newer := range rows[:len(rows)-1] {
		changes, err := hardware.Differences(rows[i+1].Document, newer.Document)
		if err != nil {
			continue // one of a version that kept other reports too
		}
		for _, c := range changes {
			if len(out.Changes) == mostChanges {
				out.ChangesLeftOut++
				continue
			}
			out.Changes = append(out.Changes, &baremetalv1.InventoryChange{
				At: convert.Timestamp(newer.ReportedAt), Part: c.Part, Item: c.Item, Kind: c.Kind, Field: c.Field,
				Before: c.Before, After: c.After,
			})
		}
	}
	return out, nil
}

// Hardware has the values that distinguish a machine from others.
type Hardware struct {
	MachineID, Site, BMCEndpoint string
	// MACs are of its network interfaces, lower case with colons. UUID and Serials are as its spec, its newest inventory
	// or its report has them.
	MACs, Serials []string
	UUID          string
}

// KnownHardware reads the machines of a site, and those of any site that have one of the MAC addresses.
func (s *Store) KnownHardware(ctx context.Context, site string, macs []string) ([]Hardware, error) {
	rows, err := s.db.Lists(ctx).KnownHardware(ctx, dbsqlc.KnownHardwareParams{Site: site, Macs: macs})
	if err != nil {
		return nil, fmt.Errorf("read what tells machines: %w", err)
	}
	out := make([]Hardware, 0, len(rows))
	for _, r := range rows {
		h := Hardware{MachineID: r.MachineID, Site: r.Site, BMCEndpoint: r.BmcEndpoint, MACs: r.Macs, UUID: r.SystemUuid}
		for _, serial := range []string{r.SpecSerial, r.SerialNumber} {
			if serial != "" {
				h.Serials = append(h.Serials, serial)
			}
		}
		out = append(out, h)
	}
	return out, nil
}
