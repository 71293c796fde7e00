package admin

import (
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"slices"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) siteCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "site",
		Short: "Say what the agent of a site serves, and see what it sees",
		Long: `A site is a place with one site agent and its machines. Its segments are the networks on which the agent gives
addresses and boot files to machines.`,
		Example: "  ingot site add berlin --segment eth1 --address 10.20.0.1/24\n  ingot site leases berlin",
	}
	cmd.AddCommand(
		a.siteAddCmd(),
		a.siteSetCmd(),
		a.siteGetCmd(),
		a.siteListCmd(),
		a.siteLeasesCmd(),
		a.siteDiscoveredCmd(),
	)
	return cmd
}

func (a commands) siteSetCmd() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "set -f FILE",
		Short: "Replace the segments of a site",
		Long: `Replace the segments of a site by those of a file, and make the site where there is none.
What ingot site get -o yaml prints can be edited and set again.

mode is dhcp (default), proxy, where another server gives the addresses, or static, where nobody does.
discovery says what a
machine gets that is in no inventory: off, report (default) or boot.`,
		Example: `  ingot site set -f berlin.yaml

  # berlin.yaml
  site: berlin
  segments:
    - name: provisioning
      interface: eth1
      address: 10.20.0.1/24
      pool_start: 10.20.0.100
      pool_end: 10.20.0.199
      dns: [10.20.0.1]`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := a.readSite(file)
			if err != nil {
				return err
			}
			svc, err := a.app.Services()
			if err != nil {
				return err
			}
			got, err := svc.Admin.SetSite(cmd.Context(), req)
			if err != nil {
				return err
			}
			return a.printSite(got)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML or JSON file with site and segments; - is standard input")
	a.app.Must(cmd.MarkFlagRequired("file"))
	return cmd
}

// readSite reads what is to be set, and leaves out what only the server can know.
func (a commands) readSite(path string) (*pb.SetSiteRequest, error) {
	raw, err := a.app.ReadInput(path)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := yaml.Unmarshal(raw, &tree); err != nil {
		return nil, command.Invalidf("%s: %w", path, err)
	}
	var site pb.Site
	if err := command.FromTree(tree, &site); err != nil {
		return nil, command.Invalidf("%s: %w", path, err)
	}
	return &pb.SetSiteRequest{Site: site.GetSite(), Segments: site.GetSegments(),
		DriftThreshold: site.GetDriftThreshold()}, nil
}

func (a commands) printSite(s *pb.Site) error {
	return a.app.Print(s, func() string { return a.app.Style().Site(s, a.app.Now()) }, s.GetSite())
}

func (a commands) siteGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "get SITE",
		Short:             "Show one site",
		Long:              `Show one site: its segments, how they do, and whether its agent serves by the newest revision.`,
		Example:           "  ingot site get berlin\n  ingot site get berlin -o yaml",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteSites()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			s, err := svc.Admin.GetSite(cmd.Context(), &pb.GetSiteRequest{Site: args[0]})
			if err != nil {
				return err
			}
			return a.printSite(s)
		}),
	}
}

func (a commands) siteListCmd() *cobra.Command {
	var narrow command.Narrow
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List sites",
		Long:    `List sites with their agents and revisions.`,
		Example: "  ingot site list",
		Args:    cobra.NoArgs,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, _ []string) error {
			all, err := command.Pages(0, func(size int32, token string) ([]*pb.Site, string, error) {
				r, err := svc.Admin.ListSites(
					cmd.Context(),
					&pb.ListSitesRequest{PageSize: size, PageToken: token, Filter: narrow.Filter, OrderBy: narrow.OrderBy},
				)
				return r.GetSites(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return a.app.Print(
				&pb.ListSitesResponse{Sites: all},
				func() string { return a.app.Style().Sites(all, a.app.Now()).String() },
				command.Names(all, (*pb.Site).GetSite)...)
		}),
	}
	narrow.Register(cmd, "site=ber*", "applied_at desc")
	return cmd
}

func (a commands) siteLeasesCmd() *cobra.Command {
	var machine string
	var narrow command.Narrow
	cmd := &cobra.Command{
		Use:   "leases SITE",
		Short: "Show the addresses that a site's agent has given",
		Long: `Show the DHCP leases of a site, as its agent has reported them. With -o name the addresses
alone.`,
		Example: `  ingot site leases berlin
  ssh debian@"$(ingot site leases berlin --machine m-1 -o name)"`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteSites()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			leases, err := command.Pages(0, func(size int32, page string) ([]*pb.SiteLease, string, error) {
				r, err := svc.Admin.ListSiteLeases(
					cmd.Context(),
					&pb.ListSiteLeasesRequest{
						Site:      args[0],
						PageSize:  size,
						PageToken: page,
						Filter:    narrow.Filter,
						OrderBy:   narrow.OrderBy,
					},
				)
				return r.GetLeases(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			if machine != "" {
				leases = slices.DeleteFunc(leases, func(l *pb.SiteLease) bool { return l.GetMachineId() != machine })
			}
			return a.app.Print(&pb.ListSiteLeasesResponse{Leases: leases}, func() string {
				return a.app.Style().Leases(leases, a.app.Now()).String()
			}, command.Names(leases, (*pb.SiteLease).GetAddress)...)
		}),
	}
	cmd.Flags().StringVar(&machine, "machine", "", "those of this machine alone")
	narrow.Register(cmd, "segment=r42", "expires_at desc")
	return cmd
}

func (a commands) siteDiscoveredCmd() *cobra.Command {
	var narrow command.Narrow
	cmd := &cobra.Command{
		Use:   "discovered [SITE]",
		Short: "Show machines that asked to boot and are in no inventory",
		Long: `Show the machines that asked to boot at a site, or at any, and are in no inventory. Take one in with
ingot machine register MACHINE --mac MAC --site SITE.`,
		Example:           "  ingot site discovered berlin",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteSites()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			req := &pb.ListDiscoveredRequest{Filter: narrow.Filter, OrderBy: narrow.OrderBy}
			if len(args) == 1 {
				req.Site = args[0]
			}
			all, err := command.Pages(0, func(size int32, token string) ([]*pb.DiscoveredMachine, string, error) {
				req.PageSize, req.PageToken = size, token
				r, err := svc.Admin.ListDiscovered(cmd.Context(), req)
				return r.GetMachines(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			return a.app.Print(
				&pb.ListDiscoveredResponse{Machines: all},
				func() string { return a.app.Style().Discovered(all, a.app.Now()).String() },
				command.Names(all, (*pb.DiscoveredMachine).GetMacAddress)...)
		}),
	}
	narrow.Register(cmd, "arch=x86_64", "last_seen_at desc")
	return cmd
}
