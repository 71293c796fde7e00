package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func (a *app) bmcCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bmc",
		Short:   "Management controllers of machines",
		Long:    `What site agents need to speak to the management controllers (BMCs) of machines.`,
		Example: "  ingot bmc credentials list",
	}
	credentials := &cobra.Command{
		Use:   "credentials",
		Short: "Set, list and delete the credentials of BMCs",
		Long: `BMC credentials have a name, which machines refer to: ingot machine update MACHINE --bmc-credentials NAME. They are
stored encrypted, and reach only the site agent that serves the machine.`,
		Example: "  ingot bmc credentials set rack-42 --username admin --password-file pw",
	}
	credentials.AddCommand(a.credentialsSetCmd(), a.credentialsListCmd(), a.credentialsDeleteCmd())
	cmd.AddCommand(credentials)
	return cmd
}

func (a *app) credentialsSetCmd() *cobra.Command {
	var username, file string
	cmd := &cobra.Command{
		Use:   "set NAME --username USER",
		Short: "Store a user name and a password",
		Long: `Store a user name and a password under a name, or replace them. The password is asked for at a terminal, else read
from standard input or from a file; it is never an argument, which others on this machine could read. One line end
after it is left out.

A BMC that was parked for a wrong password is tried again.`,
		Example: `  ingot bmc credentials set rack-42 --username admin
  ingot bmc credentials set rack-42 --username admin --password-file pw`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeAt(a.completeCredentials()),
		RunE: func(cmd *cobra.Command, args []string) error {
			password, err := a.password(args[0], file)
			if err != nil {
				return err
			}
			svc, err := a.services()
			if err != nil {
				return err
			}
			c, err := svc.admin.SetBMCCredentials(cmd.Context(), &pb.SetBMCCredentialsRequest{
				CredentialsRef: args[0], Username: username, Password: password,
			})
			if err != nil {
				return err
			}
			return a.print(c, func() string {
				return fmt.Sprintf("Stored %s, version %d\n", c.GetCredentialsRef(), c.GetVersion())
			}, c.GetCredentialsRef())
		},
	}
	cmd.Flags().StringVar(&username, "username", "", "user name at the BMC")
	cmd.Flags().StringVar(&file, "password-file", "", "file with the password; - is standard input")
	a.must(cmd.MarkFlagRequired("username"))
	return cmd
}

// password reads a password from a file, a terminal or standard input.
func (a *app) password(name, file string) (string, error) {
	switch {
	case file != "" && file != "-":
		raw, err := a.readInput(file)
		return oneLine(string(raw)), err
	case file == "" && a.cfg.ReadPassword != nil:
		a.ask("Password for %s: ", name)
		raw, err := a.cfg.ReadPassword()
		a.note("")
		if err != nil {
			return "", fmt.Errorf("read password: %w", err)
		}
		return string(raw), nil
	}
	line, err := bufio.NewReader(a.cfg.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read password: %w", err)
	}
	return oneLine(line), nil
}

// oneLine leaves out the line end that editors and echo put behind a password.
func oneLine(s string) string { return strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r") }

// ask writes a question without a line end. A lost one is not worth failing for.
func (a *app) ask(format string, args ...any) {
	_, _ = fmt.Fprintf(a.cfg.Err, format, args...)
}

func (a *app) credentialsListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the credentials of BMCs, without passwords",
		Long:    `List the credentials of BMCs. Passwords are never shown.`,
		Example: "  ingot bmc credentials list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			svc, err := a.services()
			if err != nil {
				return err
			}
			all, err := pages(0, func(size int32, token string) ([]*pb.BMCCredentials, string, error) {
				r, err := svc.admin.ListBMCCredentials(cmd.Context(), &pb.ListBMCCredentialsRequest{PageSize: size, PageToken: token})
				return r.GetCredentials(), r.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(all))
			for i, c := range all {
				names[i] = c.GetCredentialsRef()
			}
			return a.print(&pb.ListBMCCredentialsResponse{Credentials: all}, func() string { return a.style().Credentials(all).String() }, names...)
		},
	}
}

func (a *app) credentialsDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		Short:             "Delete credentials that no machine names",
		Long:              `Delete credentials that no machine names. At the BMC itself nothing changes.`,
		Example:           "  ingot bmc credentials delete rack-41",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeAt(a.completeCredentials()),
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := a.services()
			if err != nil {
				return err
			}
			c, err := svc.admin.DeleteBMCCredentials(cmd.Context(), &pb.DeleteBMCCredentialsRequest{CredentialsRef: args[0]})
			if err != nil {
				return err
			}
			return a.print(c, func() string { return "Deleted " + c.GetCredentialsRef() + "\n" }, c.GetCredentialsRef())
		},
	}
}
