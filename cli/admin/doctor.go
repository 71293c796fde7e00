package admin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) doctorCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "List what an admin should look at, each with its remedy",
		Long: `List what an admin should look at, each with its remedy: passwords of BMCs that may travel
unprotected or to addresses that nobody has confirmed, machines whose BMC gets none, BMCs whose
certificate has changed. It changes nothing. It needs scope admin. ingot-agent doctor checks a
machine.`,
		Example: "  ingot doctor",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := &view.Table{Header: []string{"WHAT", "FINDING", "REMEDY"}}
			for _, check := range []func(*cobra.Command, *view.Table) error{a.checkCredentials, a.checkCertificates} {
				if err := check(cmd, t); err != nil {
					return err
				}
			}
			if len(t.Rows) == 0 {
				return a.Write("Nothing to look at\n")
			}
			return a.Write(t.String())
		},
	}
}

func (a commands) checkCredentials(cmd *cobra.Command, t *view.Table) error {
	svc, err := a.Services()
	if err != nil {
		return err
	}
	r, err := svc.Admin.ListBMCCredentials(cmd.Context(), &pb.ListBMCCredentialsRequest{})
	if err != nil {
		return err
	}
	for _, c := range r.GetCredentials() {
		ref := c.GetCredentialsRef()
		what, allow := "BMC credentials "+ref, "ingot bmc credentials allow "+ref
		if c.GetAdopted() {
			t.Add(what, "an upgrade allowed the endpoints in use: "+view.Clean(strings.Join(c.GetAllowedEndpoints(), " ")),
				allow+" --allow … with those that are right")
		}
		if c.GetAllowPlainHttp() {
			t.Add(what, "may be sent without TLS", allow+
				" --allow-plain-http=false, and redfish:// in the machines' bmc_endpoint")
		}
		if c.GetAllowUnverifiedTls() {
			t.Add(what, "may be sent whatever certificate a BMC shows", allow+" --allow-unverified-tls=false")
		}
		if n := len(c.GetRefusedMachines()); n > 0 {
			t.Add(what, fmt.Sprintf("are not for the BMCs of %d machines that name them: %s", n,
				strings.Join(c.GetRefusedMachines(), " ")),
				allow+" --allow …, or correct bmc_endpoint")
		}
	}
	return nil
}

func (a commands) checkCertificates(cmd *cobra.Command, t *view.Table) error {
	all, err := a.bmcCertificates(cmd, &pb.ListBMCCertificatesRequest{Changed: true})
	if err != nil {
		return err
	}
	for _, c := range all {
		remedy := "no machine has this BMC any more"
		if ids := c.GetMachineIds(); len(ids) > 0 {
			remedy = "compare, then ingot bmc trust " + ids[0] + " --sha256 " + c.GetOfferedSha256()
		}
		t.Add("BMC "+view.Clean(c.GetEndpoint()), "shows another certificate since "+view.Time(c.GetOfferedAt())+
			" and gets no password", remedy)
	}
	return nil
}
