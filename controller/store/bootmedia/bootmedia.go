// Package bootmedia knows which machines may come into the installer by virtual media.
package bootmedia

import (
	"context"
	"fmt"
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// Refusal returns why a machine of the site cannot boot from virtual media; nil where it may, or goes another way.
func Refusal(
	ctx context.Context, q *dbsqlc.Queries, site string, spec *baremetalv1.MachineSpec, path string,
) (*fleet.Refusal, error) {
	if path != operation.PathMedia {
		return nil, nil
	}
	if strings.HasPrefix(spec.GetBmcEndpoint(), "ipmi://") {
		return &fleet.Refusal{
			Reason: "MEDIA_UNSUPPORTED",
			Message: "the machine's BMC is spoken to over IPMI, which has no " +
				"virtual media; name its Redfish service with `ingot machine update MACHINE --bmc-endpoint`, or take another way " +
				"with `ingot reimage MACHINE --path bmc`",
		}, nil
	}
	row, err := q.SiteRow(ctx, site)
	if err != nil {
		return nil, fmt.Errorf("read site: %w", err)
	}
	segments, err := convert.FromJSONList[baremetalv1.Segment](row.Segments)
	if err != nil || spec.GetInstallAddress() != "" || slices.ContainsFunc(segments, func(g *baremetalv1.Segment) bool {
		return g.GetMode() != "static"
	}) {
		return nil, err
	}
	return &fleet.Refusal{
		Reason: "NO_INSTALL_ADDRESS",
		Message: "nobody gives addresses on the machine's segment, and none " +
			"is known for its installer; name one with `ingot machine update MACHINE --install-address ADDRESS/BITS`",
	}, nil
}
