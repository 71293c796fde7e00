package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) sshCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ssh",
		Short:   "What site agents log in to machines with",
		Long:    `What site agents log in to machines with, to run scripts on them.`,
		Example: "  ingot ssh credentials list",
	}
	credentials := &cobra.Command{
		Use:   "credentials",
		Short: "Set, list and delete SSH credentials",
		Long: `SSH credentials are a user name and a private key. They have a name, which machines refer to:
ingot machine update MACHINE --ssh-credentials NAME. They are stored encrypted, and reach only the site agent that
serves the machine.`,
		Example: "  ingot ssh credentials set rack-42 --username root --key-file id_ed25519",
	}
	credentials.AddCommand(a.sshSetCmd(), a.sshListCmd(), a.sshDeleteCmd())
	cmd.AddCommand(credentials)
	return cmd
}

func (a commands) sshSetCmd() *cobra.Command {
	var username, file string
	cmd := &cobra.Command{
		Use:   "set NAME --username USER --key-file FILE",
		Short: "Store a user name and a private key",
		Long: `Store a user name and a private key under a name, or replace them. The key has no
passphrase: Ed25519, ECDSA, or RSA of at least 3072 bits. The public key is printed: it belongs into
the user's authorized_keys.`,
		Example:           "  ingot ssh credentials set rack-42 --username root --key-file id_ed25519",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteSSHCredentials()),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.app.ReadInput(file)
			if err != nil {
				return err
			}
			svc := a.app.Services()
			c, err := svc.Scripts.SetSSHCredentials(cmd.Context(), &pb.SetSSHCredentialsRequest{
				CredentialsRef: args[0], Username: username, PrivateKey: key,
			})
			if err != nil {
				return err
			}
			return a.app.Print(c, func() string {
				return fmt.Sprintf("Stored %s, version %d\n%s\n", c.GetCredentialsRef(), c.GetVersion(), c.GetPublicKey())
			}, c.GetCredentialsRef())
		},
	}
	cmd.Flags().StringVar(&username, "username", "", "user name at the machines")
	cmd.Flags().StringVar(&file, "key-file", "", "file with the private key; - is standard input")
	a.app.Must(cmd.MarkFlagRequired("username"))
	a.app.Must(cmd.MarkFlagRequired("key-file"))
	return cmd
}

func (a commands) sshListCmd() *cobra.Command {
	return command.ListOf(a.app.Services().Scripts.ListSSHCredentials,
		(*pb.SSHCredentials).GetCredentialsRef, view.Style.SSHCredentials).
		Command(a.app, &cobra.Command{
			Short:   "List SSH credentials, with their public keys",
			Long:    `List SSH credentials. Private keys are never shown.`,
			Example: "  ingot ssh credentials list",
		}, "credentials_ref=rack-*", "updated_at desc")
}

func (a commands) sshDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		Short:             "Delete SSH credentials that no machine names",
		Long:              `Delete SSH credentials that no machine names. On the machines nothing changes.`,
		Example:           "  ingot ssh credentials delete rack-41",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.app.CompleteSSHCredentials()),
		RunE: command.Do(
			a.app,
			"Deleted",
			a.app.Services().Scripts.DeleteSSHCredentials,
			(*pb.SSHCredentials).GetCredentialsRef,
		),
	}
}
