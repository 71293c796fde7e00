package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) loginCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "login",
		Short: "Sign on as a person, with the provider that the controller names",
		Long: `Sign on with the provider of OpenID Connect that the controller names. The command prints a page
and a code; open the page on any computer and confirm the code there.

The sign-on is kept beside the configuration file, with mode 0600, and renews itself. It counts for
commands to this server that are given no token: by --token-file, INGOT_TOKEN, INGOT_TOKEN_FILE or the
context.`,
		Example: "  ingot login --server ingot.example.org:50051 --ca-file ca.pem\n  ingot login",
		Args:    cobra.NoArgs,
		RunE:    a.login,
	}
}

func (a commands) login(cmd *cobra.Command, _ []string) error {
	target, err := a.app.Target()
	if err != nil {
		return err
	}
	if target.Login == "" {
		return command.Usagef("a token is given, and would win over the sign-on: leave --token-file, INGOT_TOKEN, " +
			"INGOT_TOKEN_FILE and the token of the context out")
	}
	a.app.Anonymous = true // an old sign-on would be renewed first
	svc := a.app.Services()
	how, err := svc.Access.GetSignOn(cmd.Context(), &pb.GetSignOnRequest{})
	if err != nil {
		return err
	}
	device, err := client.NewLogin(target.Server, how).Begin(cmd.Context(), how.GetDeviceAuthorizationEndpoint())
	if err != nil {
		return err
	}
	a.app.Note("Open %s\nand confirm the code %s", view.Clean(device.URL), view.Clean(device.Code))
	login, err := device.Finish(cmd.Context())
	if err != nil {
		return err
	}
	if err := login.Save(target.Login); err != nil {
		return err
	}
	a.app.Reconnect()
	return a.whoami(cmd, nil)
}

func (a commands) logoutCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Forget the sign-on for a server",
		Long: `Remove the file of ingot login. The token in it may count until it ends, within an hour as a
rule; an administrator ends it at once by ingot session revoke.`,
		Example: "  ingot logout",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			target, err := a.app.Target()
			if err != nil {
				return err
			}
			path := target.Login
			if path == "" {
				return command.Usagef("a token is given; there is no sign-on to forget beside it")
			}
			err = os.Remove(path)
			if errors.Is(err, fs.ErrNotExist) {
				return a.app.Write("No person was signed on to " + target.Server + "\n")
			}
			if err != nil {
				return fmt.Errorf("forget the sign-on: %w", err)
			}
			return a.app.Write("Signed off from " + target.Server + "\n")
		},
	}
}

func (a commands) whoamiCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show who the controller takes the caller for, and what that one may do",
		Long: `Show the caller as the controller sees it: the name in the audit log, and the scope of a token, or
the groups and roles of a person with the machines that they are for.`,
		Example: "  ingot whoami\n  ingot whoami -o json",
		Args:    cobra.NoArgs,
		RunE:    a.whoami,
	}
}

func (a commands) whoami(cmd *cobra.Command, _ []string) error {
	svc := a.app.Services()
	c, err := svc.Access.GetCaller(cmd.Context(), &pb.GetCallerRequest{})
	if err != nil {
		return err
	}
	return a.app.Print(c, func() string { return a.app.Style().Caller(c) }, c.GetName())
}
