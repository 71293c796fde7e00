package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) bmcCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bmc",
		Short:   "Management controllers of machines",
		Long:    `What site agents need to speak to the management controllers (BMCs) of machines.`,
		Example: "  ingot bmc credentials list",
	}
	credentials := &cobra.Command{
		Use:   "credentials",
		Short: "Set, list and delete the credentials of BMCs",
		Long: `BMC credentials have a name, which machines refer to: ingot machine update MACHINE
--bmc-credentials NAME. They are stored encrypted, and reach only the site agent that serves the
machine.`,
		Example: "  ingot bmc credentials set rack-42 --username admin --allow 10.20.1.0/24 --password-file pw",
	}
	credentials.AddCommand(a.credentialsSetCmd(), a.credentialsAllowCmd(), a.credentialsListCmd(),
		a.credentialsDeleteCmd())
	cmd.AddCommand(credentials, a.bmcCertificatesCmd(), a.bmcTrustCmd(), a.bmcUnparkCmd(),
		a.bmcRotateCmd())
	return cmd
}

func (a commands) credentialsSetCmd() *cobra.Command {
	var username, file string
	var where allowance
	cmd := &cobra.Command{
		Use:   "set NAME --username USER --allow ENDPOINT",
		Short: "Store a user name and a password",
		Long: `Store a user name and a password under a name, or replace them. The password is asked for
at a terminal, else read from standard input or from a file; it is never an argument, which others
on this machine could read. One line end after it is left out.

--allow says which BMCs the password may be sent to: hosts, host:port, or networks such as
10.20.1.0/24. It goes nowhere else, whatever a machine's spec says. New credentials need it; a new
password keeps it.

A BMC that was parked for a wrong password is tried again.`,
		Example: `  ingot bmc credentials set rack-42 --username admin --allow 10.20.1.0/24
  ingot bmc credentials set rack-42 --username admin --password-file pw`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteCredentials()),
		RunE: func(cmd *cobra.Command, args []string) error {
			password, err := a.app.Password(args[0], file)
			if err != nil {
				return err
			}
			svc := a.app.Services()
			r := where.request(cmd, args[0])
			r.Username, r.Password = username, password
			c, err := svc.Admin.SetBMCCredentials(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.app.Print(c, func() string {
				return fmt.Sprintf("Stored %s, version %d\n", c.GetCredentialsRef(), c.GetVersion())
			}, c.GetCredentialsRef())
		},
	}
	cmd.Flags().StringVar(&username, "username", "", "user name at the BMC")
	cmd.Flags().StringVar(&file, "password-file", "", "file with the password; - is standard input")
	where.bind(cmd)
	a.app.Must(cmd.MarkFlagRequired("username"))
	return cmd
}

// allowance is where a password may be sent.
type allowance struct {
	allow             []string
	plain, unverified bool
}

func (w *allowance) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&w.allow, "allow", nil,
		"BMCs that it may be sent to: host, host:port or network; replaces what was allowed")
	f.BoolVar(&w.plain, "allow-plain-http", false,
		"it may be sent without TLS (redfish+http): anybody on the way reads it")
	f.BoolVar(&w.unverified, "allow-unverified-tls", false, "it may be sent whatever certificate the BMC shows")
}

func (w *allowance) request(cmd *cobra.Command, ref string) *pb.SetBMCCredentialsRequest {
	r := &pb.SetBMCCredentialsRequest{CredentialsRef: ref, AllowedEndpoints: w.allow}
	if cmd.Flags().Changed("allow-plain-http") {
		r.AllowPlainHttp = &w.plain
	}
	if cmd.Flags().Changed("allow-unverified-tls") {
		r.AllowUnverifiedTls = &w.unverified
	}
	return r
}

func (a commands) credentialsAllowCmd() *cobra.Command {
	var where allowance
	cmd := &cobra.Command{
		Use:   "allow NAME",
		Short: "Say which BMCs a password may be sent to",
		Long: `Say which BMCs a password may be sent to, and how. User name and password stay as they are.
--allow replaces what was allowed, and confirms an allowance that an upgrade has filled in.`,
		Example: `  ingot bmc credentials allow rack-42 --allow 10.20.1.0/24
  ingot bmc credentials allow rack-42 --allow-plain-http=false`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteCredentials()),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := where.request(cmd, args[0])
			if len(r.GetAllowedEndpoints()) == 0 && r.AllowPlainHttp == nil && r.AllowUnverifiedTls == nil {
				return command.Usagef("give --allow, --allow-plain-http or --allow-unverified-tls")
			}
			svc := a.app.Services()
			c, err := svc.Admin.SetBMCCredentials(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.app.Print(c, func() string {
				return fmt.Sprintf("%s may be sent to %s\n", c.GetCredentialsRef(), strings.Join(c.GetAllowedEndpoints(), ", "))
			}, c.GetCredentialsRef())
		},
	}
	where.bind(cmd)
	return cmd
}

func (a commands) bmcCertificatesCmd() *cobra.Command {
	l := command.ListOf(a.app.Services().Admin.ListBMCCertificates,
		(*pb.BMCCertificate).GetEndpoint, view.Style.BMCCertificates)
	cmd := l.Command(a.app, &cobra.Command{
		Use:   "certificates",
		Short: "List the certificates that BMCs have shown",
		Long: `List the certificates that BMCs have shown to the agent of their site. The first one is
trusted; a BMC that shows another one gets no password until the old one is back, or until "ingot
bmc trust".`,
		Example: "  ingot bmc certificates --changed",
	}, "site=berlin", "pinned_at desc")
	cmd.Flags().BoolVar(&l.Request.Changed, "changed", false, "only those that have changed and wait for an admin")
	cmd.Flags().StringVar(&l.Request.MachineId, "machine", "", "only that of this machine's BMC")
	a.app.Must(cmd.RegisterFlagCompletionFunc("machine", a.app.CompleteMachines()))
	return cmd
}

func (a commands) bmcTrustCmd() *cobra.Command {
	var sum, comment string
	cmd := &cobra.Command{
		Use:   "trust MACHINE --sha256 FINGERPRINT",
		Short: "Trust the certificate that a machine's BMC shows now",
		Long: `Trust the certificate that a machine's BMC shows now, after it has changed. Compare it
first with what the BMC itself says, over a way that you trust: ingot bmc certificates --machine
MACHINE shows both.`,
		Example:           "  ingot bmc trust m-1 --sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteMachines()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			a.app.Subject.Machine = args[0]
			c, err := svc.Admin.TrustBMCCertificate(cmd.Context(), &pb.TrustBMCCertificateRequest{
				MachineId: args[0], Sha256: strings.ToLower(strings.ReplaceAll(sum, ":", "")), Comment: comment,
			})
			if err != nil {
				return err
			}
			return a.app.Print(c, func() string { return "The BMC " + c.GetEndpoint() + " is asked again within a minute\n" },
				c.GetEndpoint())
		}),
	}
	cmd.Flags().StringVar(&sum, "sha256", "", "SHA-256 of the certificate, in hexadecimal digits")
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log only")
	a.app.Must(cmd.MarkFlagRequired("sha256"))
	return cmd
}

func (a commands) bmcUnparkCmd() *cobra.Command {
	var comment string
	cmd := &cobra.Command{
		Use:   "unpark MACHINE…",
		Short: "Have BMCs asked again that are left alone since they refused their credentials",
		Long: `Have a machine's BMC asked again that is left alone since it refused its credentials: once,
with the ones that it has now. It is for a BMC that was wrong, or that has got the right password
since. Each call is one more try, which can lock the BMC's account. New credentials need no such
call.`,
		Example: `  ingot bmc unpark m-1 --comment 'the directory was down'
  ingot bmc unpark --select rack=r42`,
	}
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log only")
	return a.app.ForEach(cmd, "The BMCs of %d machines are tried once more.",
		func(ctx context.Context, svc *command.Services, id string) error {
			r, err := svc.Admin.UnparkBMC(ctx, &pb.UnparkBMCRequest{MachineId: id, Comment: comment})
			if err != nil {
				return err
			}
			return a.app.Print(
				r,
				func() string { return "The BMC " + r.GetEndpoint() + " is asked once more within a minute\n" },
				r.GetEndpoint(),
			)
		})
}

func (a commands) bmcRotateCmd() *cobra.Command {
	return a.app.RunsPlan(&cobra.Command{
		Use:   "rotate-password MACHINE",
		Short: "Give the BMCs of machines new passwords",
		Long: `Give the account by which a machine's BMC is known a new random password, which no other BMC
has. Ingot stores it sealed before the BMC hears of it, and shows it to nobody; the credentials that
the machine names keep their own. It is done when the BMC has taken a log-in with it. The machine
goes on undisturbed. It needs the scope admin.

When the end of a change is not known, start it again: the new password is tried first.` +
			command.TargetsHelp + command.WaitHelp,
		Example: `  ingot bmc rotate-password m-1
  ingot bmc rotate-password --select rack=r42`,
	}, "", "bmc-rotate-password")
}

func (a commands) credentialsListCmd() *cobra.Command {
	return command.ListOf(a.app.Services().Admin.ListBMCCredentials,
		(*pb.BMCCredentials).GetCredentialsRef, view.Style.Credentials).
		Command(a.app, &cobra.Command{
			Short:   "List the credentials of BMCs, without passwords",
			Long:    `List the credentials of BMCs. Passwords are never shown.`,
			Example: "  ingot bmc credentials list",
		}, "adopted=true", "updated_at desc")
}

func (a commands) credentialsDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		Short:             "Delete credentials that no machine names",
		Long:              `Delete credentials that no machine names. At the BMC itself nothing changes.`,
		Example:           "  ingot bmc credentials delete rack-41",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteCredentials()),
		RunE: command.Do(
			a.app,
			"Deleted",
			a.app.Services().Admin.DeleteBMCCredentials,
			(*pb.BMCCredentials).GetCredentialsRef,
		),
	}
}
