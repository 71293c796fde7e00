package admin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/internal/userdata"
)

func (a commands) maasCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "maas",
		Short: "The MAAS regions that drive machines",
		Long: `The MAAS regions that drive machines of provider maas. A region is the address of a MAAS
installation and an API key. Machines name theirs with --provider maas --provider-ref NAME;
"default" is that of machines that name none. Keys are stored encrypted, and reach only the site
agents that serve the region's machines.`,
		Example: "  ingot maas list",
	}
	cmd.AddCommand(a.maasSetCmd(), a.maasListCmd(), a.maasDeleteCmd())
	return cmd
}

func (a commands) maasSetCmd() *cobra.Command {
	var keyFile, caFile, userDataFile string
	r := &pb.SetMAASRegionRequest{}
	cmd := &cobra.Command{
		Use:   "set NAME --endpoint URL --key-file FILE",
		Short: "Store a MAAS region, or replace it",
		Long: `Store the address of a MAAS region and an API key under a name, or replace them. The key is
what MAAS shows under the user's API keys: consumer:token:secret. Deployments are given cloud-init
user data that lets the agent of the image enrol; --user-data-file replaces it, with
{{bootstrap_bundle}}, {{machine_id}} and {{hostname}} to be filled in.`,
		Example: `  ingot maas set default --endpoint http://maas.example:5240/MAAS --key-file maas.key
  ingot maas set lab --endpoint https://lab.example/MAAS --key-file - --ca-file lab.pem --retain-machines`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMAASRegions()),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.readRegion(r, keyFile, caFile, userDataFile); err != nil {
				return err
			}
			svc := a.app.Services()
			r.RegionRef = args[0]
			m, err := svc.MAAS.SetMAASRegion(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.app.Print(
				m,
				func() string { return fmt.Sprintf("Stored %s, version %d\n", m.GetRegionRef(), m.GetVersion()) },
				m.GetRegionRef(),
			)
		},
	}
	cmd.Flags().StringVar(&r.Endpoint, "endpoint", "", "URL of MAAS, without /api/2.0")
	cmd.Flags().StringVar(&keyFile, "key-file", "", "file with the API key; - is standard input")
	cmd.Flags().StringVar(&caFile, "ca-file", "", "file with root certificates for the endpoint, PEM")
	cmd.Flags().StringVar(&userDataFile, "user-data-file", "", "file with cloud-init user data for deployments")
	cmd.Flags().BoolVar(&r.RetainMachines, "retain-machines", false, "leave machines in MAAS when they are decommissioned")
	a.app.Must(cmd.MarkFlagRequired("endpoint"))
	a.app.Must(cmd.MarkFlagRequired("key-file"))
	return cmd
}

// readRegion reads what a region has in files.
func (a commands) readRegion(r *pb.SetMAASRegionRequest, keyFile, caFile, userDataFile string) error {
	key, err := a.app.ReadInput(keyFile)
	if err != nil {
		return err
	}
	r.ApiKey = strings.TrimSpace(string(key))
	if caFile != "" {
		if r.CaPem, err = a.app.ReadInput(caFile); err != nil {
			return err
		}
	}
	if userDataFile != "" {
		text, err := a.app.ReadInput(userDataFile)
		if err != nil {
			return err
		}
		if r.UserData, err = userdata.Plain(text); err != nil {
			return command.Invalidf("%s: %w", userDataFile, err)
		}
	}
	return nil
}

func (a commands) maasListCmd() *cobra.Command {
	return command.ListOf(a.app.Services().MAAS.ListMAASRegions, (*pb.MAASRegion).GetRegionRef, view.Style.MAASRegions).
		Command(a.app, &cobra.Command{
			Short:   "List MAAS regions",
			Long:    `List MAAS regions. Of keys only the consumer part is shown.`,
			Example: "  ingot maas list",
		}, "region_ref=lab*", "region_ref desc")
}

func (a commands) maasDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		Short:             "Delete a MAAS region that drives no machine",
		Long:              `Delete a MAAS region that drives no machine. In MAAS nothing changes.`,
		Example:           "  ingot maas delete lab",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMAASRegions()),
		RunE: command.Do(
			a.app,
			"Deleted",
			a.app.Services().MAAS.DeleteMAASRegion,
			(*pb.MAASRegion).GetRegionRef,
		),
	}
}
