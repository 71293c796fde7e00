package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/metal"
)

// dirEnv is the environment variable with the directory of the lab.
const dirEnv = "INGOT_LAB_DIR"

func defaultDir() string {
	if dir := os.Getenv(dirEnv); dir != "" {
		return dir
	}
	return fmt.Sprintf("/var/tmp/ingot-lab-%d", os.Getuid())
}

func bindDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", defaultDir(), "directory of the lab (default $"+dirEnv+" or /var/tmp/ingot-lab-UID)")
}

// asking makes a command that asks the running lab one thing.
func asking(use, short string, args cobra.PositionalArgs, request func(args []string) metal.Request,
	show func(out io.Writer, a metal.Answer) error,
) *cobra.Command {
	var dir string
	cmd := &cobra.Command{Use: use, Short: short, Args: args}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		answer, conn, err := metal.Ask(cmd.Context(), dir, request(args))
		if err != nil {
			return err
		}
		return errors.Join(conn.Close(), show(cmd.OutOrStdout(), answer))
	}
	bindDir(cmd, &dir)
	return cmd
}

func status([]string) metal.Request { return metal.Request{Do: "status"} }

func labList() *cobra.Command {
	return asking("list", "List the machines as their hardware is", cobra.NoArgs, status,
		func(out io.Writer, a metal.Answer) error {
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tPOWER\tFIRMWARE\tMAC\tBMC\tPOWER-ONS\tRESETS\tSERIAL LOG")
			for _, m := range a.Status.Machines {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", m.Name, m.Power, m.Firmware, m.MAC, m.BMC, m.PowerOns, m.Resets,
					m.Serial)
			}
			return w.Flush()
		})
}

func labEnv() *cobra.Command {
	return asking("env", "Print the exports that let ingot talk to the lab's controller", cobra.NoArgs, status,
		func(out io.Writer, a metal.Answer) error { return printEnv(out, a.Status) })
}

func printEnv(out io.Writer, s *metal.Status) error {
	_, err := fmt.Fprintf(out, "export INGOT_SERVER=%s INGOT_CA_FILE=%s INGOT_TOKEN_FILE=%s\n",
		quote(s.Frontpage), quote(s.CAFile), quote(s.TokenFile))
	return err
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func labPower() *cobra.Command {
	request := func(args []string) metal.Request {
		return metal.Request{Do: "power", Machine: args[0], Value: args[1]}
	}
	cmd := asking("power NAME on|off|soft|cut|reset", "Switch a machine behind the controller's back", cobra.ExactArgs(2),
		request,
		func(io.Writer, metal.Answer) error { return nil })
	cmd.Long = `Switch a machine by its own buttons, as a person in front of the rack would: on; off
(hold the button); soft (press it: ACPI); cut (pull the plug: the disks lose what is in their
caches); reset.`
	return cmd
}

func labConsole() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "console NAME", Short: "Attach to a machine's serial console until Ctrl-C", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, conn, err := metal.Ask(cmd.Context(), dir, metal.Request{Do: "console", Machine: args[0]})
			if err != nil {
				return err
			}
			defer context.AfterFunc(cmd.Context(), func() { _ = conn.Close() })() // ends the copy
			task.Background("typed", func() { _, _ = io.Copy(conn, cmd.InOrStdin()) })
			_, err = io.Copy(cmd.OutOrStdout(), conn)
			if cmd.Context().Err() != nil {
				return nil
			}
			return err
		},
	}
	bindDir(cmd, &dir)
	return cmd
}

func labExec() *cobra.Command {
	var dir string
	var site bool
	cmd := &cobra.Command{
		Use: "exec -- COMMAND [ARGUMENT...]", Short: "Run a command in the lab's network, such as tcpdump -i rack0",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, conn, err := metal.Ask(cmd.Context(), dir, metal.Request{Do: "status"})
			if err != nil {
				return err
			}
			conn.Close()
			argv := []string{"--net=" + answer.Status.Rack}
			if site {
				argv[0] = "--net=" + answer.Status.Site
			}
			if os.Geteuid() != 0 {
				argv = append(argv, fmt.Sprintf("--user=/proc/%d/ns/user", answer.Status.PID), "--preserve-credentials")
			}
			run := exec.CommandContext(cmd.Context(), "nsenter", append(append(argv, "--"), args...)...)
			run.Stdin, run.Stdout, run.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return run.Run()
		},
	}
	bindDir(cmd, &dir)
	cmd.Flags().BoolVar(&site, "site", false, "in the network of the site agent and the BMCs, not at the switch")
	return cmd
}
