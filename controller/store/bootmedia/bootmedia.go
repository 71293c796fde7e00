// Package bootmedia knows which machines may come into the installer by virtual media.
package bootmedia

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// Machine is a machine to install. Its addresses are empty where it has none.
type Machine struct {
	Site, BMCEndpoint, InstallAddress string
}

// Refusal returns why a machine cannot boot from virtual media; nil where it may, or goes another way.
func Refusal(
	ctx context.Context, q *dbsqlc.Queries, m Machine, path string,
) (*fleet.Refusal, error) {
	if path != operation.PathMedia {
		return nil, nil
	}
	if strings.HasPrefix(m.BMCEndpoint, "ipmi://") {
		return &fleet.Refusal{
			Reason: "MEDIA_UNSUPPORTED",
			Message: "the machine's BMC is spoken to over IPMI, which has no " +
				"virtual media; name its Redfish service with `ingot machine update MACHINE --bmc-endpoint`, or take another way " +
				"with `ingot reimage MACHINE --path bmc`",
		}, nil
	}
	row, err := q.SiteRow(ctx, m.Site)
	if err != nil {
		return nil, fmt.Errorf("read site: %w", err)
	}
	modes, err := convert.SegmentModes(row.Segments)
	if err != nil || m.InstallAddress != "" || slices.ContainsFunc(modes, func(mode string) bool {
		return mode != "static"
	}) {
		return nil, err
	}
	return &fleet.Refusal{
		Reason: "NO_INSTALL_ADDRESS",
		Message: "nobody gives addresses on the machine's segment, and none " +
			"is known for its installer; name one with `ingot machine update MACHINE --install-address ADDRESS/BITS`",
	}, nil
}
