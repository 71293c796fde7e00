// Package authority has the commands about the CA and its rotation.
package authority

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// look is how often a rotation is looked at.
const look = time.Second

// Commands returns the commands of this package.
func Commands(app *command.App) []*cobra.Command {
	a := commands{app}
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "The CA of agents and listeners, and its rotation",
		Long: `Show and rotate the CA that signs the certificates of agents and of the controller's listeners. Each
rotation makes another generation of it.`,
		Example: "  ingot ca status\n  ingot ca rotate",
	}
	cmd.AddCommand(a.statusCmd(), a.rotateCmd(), a.withdrawCmd(), a.rootsCmd())
	return []*cobra.Command{cmd}
}

// commands makes the commands of this package, all for one run of the command line.
type commands struct{ app *command.App }

func (a commands) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the CA, and who holds a certificate of an older generation",
		Long: `Show the generations of the CA, newest first. While two are in force, show the agents whose certificate
in use is of the older one, too.`,
		Example: "  ingot ca status\n  ingot ca status -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.get(cmd.Context())
			if err != nil {
				return err
			}
			return a.show(got)
		},
	}
}

func (a commands) get(ctx context.Context) (*pb.Authority, error) {
	svc := a.app.Services()
	return svc.Authority.GetAuthority(ctx, &pb.GetAuthorityRequest{})
}

func (a commands) show(got *pb.Authority) error {
	var names []string
	for _, g := range got.GetGenerations() {
		names = append(names, fmt.Sprint(g.GetGeneration()))
	}
	return a.app.Print(got, func() string { return a.app.Style().Authority(got) }, names...)
}

func (a commands) rotateCmd() *cobra.Command {
	r := &pb.RotateAuthorityRequest{}
	var noWait bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Put a new CA in the place of the old one",
		Long: `Make a new generation of the CA, wait until no agent holds a certificate of an older one, and withdraw
those. Agents trust both meanwhile, and renew their certificates over the sessions that they have.

The command can be stopped and given again at any time: it goes on where the rotation is. Agents that are
off hold it up; ingot ca status names them, and ingot ca withdraw goes on without those that it is given.

Give clients the new root (ingot ca roots) before the old one ends.`,
		Example: "  ingot ca rotate\n  ingot ca rotate --no-wait",
		Args:    cobra.NoArgs,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, _ []string) error {
			got, err := svc.Authority.RotateAuthority(cmd.Context(), r)
			if err != nil {
				return err
			}
			if !noWait {
				if got, err = a.finish(cmd.Context(), svc, got); err != nil {
					return err
				}
			}
			return a.show(got)
		}),
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return once the new generation is made")
	cmd.Flags().StringVar(&r.Comment, "comment", "", "why; kept in the audit log")
	return cmd
}

// finish waits until no agent holds an old certificate, and withdraws the old generations.
func (a commands) finish(ctx context.Context, svc *command.Services, got *pb.Authority) (*pb.Authority, error) {
	said := int32(-1)
	for got.GetHolderCount() > 0 {
		if n := got.GetHolderCount(); n != said {
			a.app.Note("%d agents hold a certificate of an older generation", n)
			said = n
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-a.app.Config.Clock.After(look):
		}
		var err error
		if got, err = svc.Authority.GetAuthority(ctx, &pb.GetAuthorityRequest{}); err != nil {
			return nil, err
		}
	}
	for i, g := range slices.Backward(got.GetGenerations()) {
		if i == 0 || g.GetWithdrawnAt() != nil {
			continue
		}
		var err error
		got, err = svc.Authority.WithdrawAuthority(ctx, &pb.WithdrawAuthorityRequest{Generation: g.GetGeneration()})
		if err != nil {
			return nil, err
		}
	}
	return got, nil
}

func (a commands) withdrawCmd() *cobra.Command {
	r := &pb.WithdrawAuthorityRequest{}
	cmd := &cobra.Command{
		Use:   "withdraw GENERATION",
		Short: "End an older generation of the CA",
		Long: `End a generation: its certificates open no session any more, and agents drop its root. It is refused
while an agent holds a certificate of it that is not named with --leave-behind.

An agent that is left behind comes back by itself when its machine is on again, until the time that ingot
ca status shows as VOUCHED_UNTIL.`,
		Example: "  ingot ca withdraw 1\n  ingot ca withdraw 1 --leave-behind r42-07,r42-08",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := fmt.Sscan(args[0], &r.Generation); err != nil {
				return command.Usagef("GENERATION is a number, not %q: see ingot ca status", args[0])
			}
			svc := a.app.Services()
			got, err := svc.Authority.WithdrawAuthority(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.show(got)
		},
	}
	cmd.Flags().StringSliceVar(&r.LeaveBehind, "leave-behind", nil, "machines and agents that may lose their sessions")
	cmd.Flags().StringVar(&r.Comment, "comment", "", "why; kept in the audit log")
	return cmd
}

func (a commands) rootsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "roots",
		Short: "Print the root certificates in force, as clients trust them",
		Long: `Print the root certificates in force in PEM, newest first, for --ca-file. The connection is verified as
always, by the root that is trusted now.`,
		Example: "  ingot ca roots > ca.pem",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.get(cmd.Context())
			if err != nil {
				return err
			}
			return a.app.WriteFile(got.GetTrustBundlePem())
		},
	}
}
