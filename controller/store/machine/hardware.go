package machine

import (
	"context"
	"fmt"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// Hardware is what tells one machine from others.
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
