package admin

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/segment"
)

func (a commands) siteAddCmd() *cobra.Command {
	var device, address, pool, router, mode, discovery string
	var dns []string
	cmd := &cobra.Command{
		Use:   "add SITE --segment INTERFACE --address ADDRESS/BITS",
		Short: "Add a segment to a site, and make the site where there is none",
		Long: `Add a segment to a site, and make the site where there is none. The address is that of the
interface, on the machine of the site agent. Without --pool machines get addresses of the half of the
network in which that address is not. A segment that is there already is left as it is; one that
differs is refused: ingot site set replaces segments.`,
		Example: `  ingot site add berlin --segment eth1 --address 10.20.0.1/24
  ingot site add berlin --segment eth1 --address 10.20.0.1/24 --pool 10.20.0.100-10.20.0.199`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			added, err := segment.New(device, address, pool)
			if err != nil {
				return command.Usagef("%w", err)
			}
			if err := segment.Reach(added, router, dns); err != nil {
				return command.Usagef("%w", err)
			}
			if err := segment.In(added, mode, pool); err != nil {
				return command.Usagef("%w", err)
			}
			added.Discovery = discovery
			got, err := a.addSegment(cmd, args[0], added, pool != "")
			if err != nil {
				return err
			}
			return a.printSite(got)
		},
	}
	f := cmd.Flags()
	f.StringVar(&device, "segment", "", "network device of the site agent's machine (required)")
	f.StringVar(&address, "address", "", "the device's own address with its prefix length (required)")
	f.StringVar(&pool, "pool", "", "addresses for machines, FIRST-LAST (default: half of the network)")
	f.StringVar(&router, "router", "", "default router of the machines (default: none)")
	f.StringSliceVar(&dns, "dns", nil, "name servers of the machines (default: none)")
	f.StringVar(&mode, "mode", "dhcp", segment.ModeUsage)
	f.StringVar(&discovery, "discovery", "report", "what a machine gets that is in no inventory: off, report or boot")
	command.Fixed(cmd, "mode", segment.Modes...)
	command.Fixed(cmd, "discovery", "off", "report", "boot")
	a.app.Must(cmd.MarkFlagRequired("segment"))
	a.app.Must(cmd.MarkFlagRequired("address"))
	return cmd
}

// addSegment adds the segment unless the site has it. pool reports that the order includes the pool.
func (a commands) addSegment(cmd *cobra.Command, site string, added *pb.Segment, pool bool) (*pb.Site, error) {
	svc := a.app.Services()
	have, err := svc.Admin.GetSite(cmd.Context(), &pb.GetSiteRequest{Site: site})
	if err != nil && status.Code(err) != codes.NotFound {
		return nil, err
	}
	for _, s := range have.GetSegments() {
		if s.GetInterface() != added.GetInterface() {
			continue
		}
		same := s.GetAddress() == added.GetAddress() && cmp.Or(s.GetMode(), "dhcp") == added.GetMode() &&
			(added.GetRouter() == "" || s.GetRouter() == added.GetRouter()) &&
			(len(added.GetDns()) == 0 || slices.Equal(s.GetDns(), added.GetDns())) &&
			(!pool || s.GetPoolStart() == added.GetPoolStart() && s.GetPoolEnd() == added.GetPoolEnd())
		if !same {
			return nil, command.Invalidf("site %s serves %s otherwise: address %s, pool %s-%s, router %s, name servers %s, "+
				"mode %s; "+
				"to change it: ingot site get %s -o yaml, then ingot site set", site, s.GetInterface(), s.GetAddress(),
				s.GetPoolStart(), s.GetPoolEnd(), cmp.Or(s.GetRouter(), "none"), cmp.Or(strings.Join(s.GetDns(), ","), "none"),
				s.GetMode(), site)
		}
		return have, nil
	}
	return svc.Admin.SetSite(cmd.Context(), &pb.SetSiteRequest{
		Site: site, Segments: append(have.GetSegments(), added), ExpectedVersion: have.GetVersion(),
	})
}
