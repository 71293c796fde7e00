package admin

import (
	"context"
	"github.com/spf13/cobra"
	"slices"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
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
			svc := a.app.Services()
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

// readSite reads the site to set, without the fields that only the server knows.
func (a commands) readSite(path string) (*pb.SetSiteRequest, error) {
	raw, err := a.app.ReadInput(path)
	if err != nil {
		return nil, err
	}
	var site pb.Site
	tree, err := command.Document(raw)
	if err == nil {
		err = command.FromTree(tree, &site)
	}
	if err != nil {
		return nil, command.Invalidf("%s: %w", path, err)
	}
	return &pb.SetSiteRequest{Site: site.GetSite(), Segments: site.GetSegments(),
		DriftThreshold: site.GetDriftThreshold()}, nil
}

func (a commands) printSite(s *pb.Site) error {
	return a.app.Print(s, func() string { return a.app.Style().Site(s) }, s.GetSite())
}

func (a commands) siteGetCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "get SITE",
		Short:             "Show one site",
		Long:              `Show one site: its segments, how they do, and whether its agent serves by the newest revision.`,
		Example:           "  ingot site get berlin\n  ingot site get berlin -o yaml",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteSites()),
		RunE:              command.Show(a.app, a.app.Services().Admin.GetSite, (*pb.Site).GetSite, view.Style.Site),
	}
}

func (a commands) siteListCmd() *cobra.Command {
	return command.ListOf(a.app.Services().Admin.ListSites, (*pb.Site).GetSite, view.Style.Sites).
		Command(a.app, &cobra.Command{
			Short:   "List sites",
			Long:    `List sites with their agents and revisions.`,
			Example: "  ingot site list",
		}, "site=ber*", "applied_at desc")
}

func (a commands) siteLeasesCmd() *cobra.Command {
	var machine string
	l := command.ListOf(a.app.Services().Admin.ListSiteLeases, (*pb.SiteLease).GetAddress, view.Style.Leases)
	l.Prepare = func(args []string) error {
		l.Request.Site = args[0]
		return nil
	}
	l.Keep = func(all []*pb.SiteLease) []*pb.SiteLease {
		return slices.DeleteFunc(all, func(s *pb.SiteLease) bool { return machine != "" && s.GetMachineId() != machine })
	}
	l.Subject = func(ctx context.Context) error {
		if machine == "" {
			return nil
		}
		_, err := a.app.Services().Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: machine})
		return err
	}
	cmd := l.Command(a.app, &cobra.Command{
		Use:   "leases SITE",
		Short: "Show the addresses that a site's agent has given",
		Long: `Show the DHCP leases of a site, as its agent has reported them. With -o name the addresses
alone.`,
		Example: `  ingot site leases berlin
  ssh debian@"$(ingot site leases berlin --machine m-1 -o name)"`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteSites()),
	}, "segment=r42", "expires_at desc")
	cmd.Flags().StringVar(&machine, "machine", "", "those of this machine alone")
	return cmd
}

func (a commands) siteDiscoveredCmd() *cobra.Command {
	l := command.ListOf(
		a.app.Services().Admin.ListDiscovered,
		(*pb.DiscoveredMachine).GetMacAddress,
		view.Style.Discovered,
	)
	l.Prepare = func(args []string) error {
		l.Request.Site = strings.Join(args, "")
		return nil
	}
	return l.Command(a.app, &cobra.Command{
		Use:   "discovered [SITE]",
		Short: "Show machines that asked to boot and are in no inventory",
		Long: `Show the machines that asked to boot at a site, or at any, and are in no inventory. Take one in with
ingot machine register MACHINE --mac MAC --site SITE.`,
		Example:           "  ingot site discovered berlin",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteSites()),
	}, "arch=x86_64", "last_seen_at desc")
}
