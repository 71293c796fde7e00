package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/lab/vm"
)

// control makes a command that does something with the running machine of a directory.
func control(use, short string, do func(ctx context.Context, m *vm.Monitor, out io.Writer) error) *cobra.Command {
	var dir string
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m, err := vm.Dial(cmd.Context(), dir)
		if err != nil {
			return fmt.Errorf("find running machine in %s: %w", dir, err)
		}
		err = do(cmd.Context(), m, cmd.OutOrStdout())
		return errors.Join(err, m.Close())
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the machine")
	require(cmd, "dir")
	return cmd
}

func vmStatus() *cobra.Command {
	return control("status", "Print the run state, such as running",
		func(ctx context.Context, m *vm.Monitor, out io.Writer) error {
			status, err := m.QueryStatus(ctx)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(out, status)
			return err
		})
}

func vmReset() *cobra.Command {
	return control("reset", "Press the reset button", func(ctx context.Context, m *vm.Monitor, _ io.Writer) error {
		return m.SystemReset(ctx)
	})
}

func vmPowerdown() *cobra.Command {
	return control("powerdown", "Press the power button", func(ctx context.Context, m *vm.Monitor, _ io.Writer) error {
		return m.Powerdown(ctx)
	})
}

func vmEndOnReset() *cobra.Command {
	return control("end-on-reset", "Make the next reset the machine's last act: it will not come back",
		func(ctx context.Context, m *vm.Monitor, _ io.Writer) error { return m.EndOnReset(ctx) })
}

func vmForwarded() *cobra.Command {
	var port int
	cmd := control("forwarded", "Print the address on this host that leads to a port of the machine",
		func(ctx context.Context, m *vm.Monitor, out io.Writer) error {
			address, err := m.Forwarded(ctx, port)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(out, address)
			return err
		})
	cmd.Flags().IntVar(&port, "port", 0, "port of the machine, given to vm run as --forward")
	require(cmd, "port")
	return cmd
}

func vmQuit() *cobra.Command {
	return control("quit", "Pull the plug", func(ctx context.Context, m *vm.Monitor, _ io.Writer) error {
		return m.Quit(ctx)
	})
}

func vmReboots() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "reboots", Short: "Print how often the machine was really reset, as its hardware saw it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := vm.RebootsOf(dir)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), n)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the machine")
	require(cmd, "dir")
	return cmd
}
