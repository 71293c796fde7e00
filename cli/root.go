package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/access"
	"github.com/ingot-metal/ingot/cli/admin"
	"github.com/ingot-metal/ingot/cli/authority"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/discover"
	"github.com/ingot-metal/ingot/cli/health"
	"github.com/ingot-metal/ingot/cli/inventory"
	"github.com/ingot-metal/ingot/cli/machines"
	"github.com/ingot-metal/ingot/cli/setup"
	"github.com/ingot-metal/ingot/cli/top"
	"github.com/ingot-metal/ingot/cli/work"
)

const (
	groupWork      = "work"
	groupInventory = "inventory"
	groupAdmin     = "admin"
	groupSetup     = "setup"
)

// Run runs one command and returns the exit code.
func Run(ctx context.Context, cfg command.Config) int {
	cfg, raw := command.Guarded(cfg)
	a := &command.App{Config: cfg, RawOut: raw}
	defer a.Close()
	root := newRoot(a)
	root.SetArgs(cfg.Args)
	root.SetIn(cfg.In)
	root.SetOut(cfg.Out)
	root.SetErr(cfg.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return command.ExitOK
	}
	a.PrintError(err)
	return command.ExitCode(err)
}

// Commands returns the tree of commands, for pages that describe it.
func Commands() *cobra.Command { return newRoot(&command.App{}) }

func newRoot(a *command.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "ingot",
		Short: "Run a fleet of bare-metal machines",
		Long: `ingot talks to an Ingot controller: it lists machines, starts operations on them and shows what happens.

Work on a machine is an operation. A command that starts one shows it live until it ends; with --no-wait it
returns at once. The request id that it prints makes a repetition safe: the same id never does the work twice.

Put the machine into maintenance before work that destroys data:

    ingot enter-maintenance m-1
    ingot reimage m-1 --image ubuntu-2204
    ingot exit-maintenance m-1`,
		Example: `  ingot list
  ingot reboot m-1
  ingot watch`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: a.Prepare,
	}
	globalFlags(a, root)
	root.AddGroup(
		&cobra.Group{ID: groupWork, Title: "Work on machines:"},
		&cobra.Group{ID: groupInventory, Title: "Inventory, images, plans and runs:"},
		&cobra.Group{ID: groupAdmin, Title: "Running Ingot:"},
		&cobra.Group{ID: groupSetup, Title: "Setup:"},
	)
	root.SetHelpCommandGroupID(groupSetup)
	root.SetCompletionCommandGroupID(groupSetup)
	add(root, groupWork, work.Commands(a)...)
	add(root, groupInventory, machines.Commands(a)...)
	add(root, groupInventory, inventory.Commands(a)...)
	add(root, groupInventory, discover.Commands(a)...)
	add(root, groupAdmin, health.Commands(a)...)
	add(root, groupAdmin, top.Commands(a)...)
	add(root, groupAdmin, admin.Commands(a)...)
	add(root, groupAdmin, access.Commands(a)...)
	add(root, groupAdmin, authority.Commands(a)...)
	add(root, groupSetup, access.Own(a)...)
	add(root, groupSetup, setup.Commands(a)...)
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: command.ExitCodesHelp})
	refuseUnknown(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return command.Usagef("%w\nsee: %s --help", err, cmd.CommandPath())
	})
	return root
}

// refuseUnknown makes a mistyped command an error that names what it may have meant, at every depth. A group of
// commands without one shows its help.
func refuseUnknown(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		refuseUnknown(c)
	}
	if cmd.Runnable() {
		return
	}
	const distance = 2 // within which a mistyped command is taken for another
	cmd.SuggestionsMinimumDistance = distance
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := ""
		if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
			text = "; did you mean " + strings.Join(like, ", ") + "?"
		}
		return command.Usagef("there is no command %q%s\nsee: %s --help", cmd.CommandPath()+" "+args[0], text,
			cmd.CommandPath())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

func add(parent *cobra.Command, group string, children ...*cobra.Command) {
	for _, c := range children {
		c.GroupID = group
		parent.AddCommand(c)
	}
}

func globalFlags(a *command.App, root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&a.Flags.Context, "context", "", "context of the configuration file to use")
	f.StringVar(&a.Flags.Server, "server", "", "controller's API as host:port (INGOT_SERVER)")
	f.StringVar(&a.Flags.CAFile, "ca-file", "", "PEM file with the controller's root certificate (INGOT_CA_FILE)")
	f.StringVar(&a.Flags.CAHash, "ca-hash", "", "SHA-256 of that root instead of a file (INGOT_CA_HASH)")
	f.StringVar(&a.Flags.TokenFile, "token-file", "",
		"file with the bearer token (INGOT_TOKEN_FILE, or INGOT_TOKEN itself)")
	f.StringVar(&a.Flags.ConfigPath, "config", "",
		"configuration file (INGOT_CONFIG; default ~/.config/ingot/config.yaml)")
	f.StringVarP(&a.Flags.Output, "output", "o", "table",
		"table, wide, json, yaml, name, or jsonpath=PATH (RFC 9535, of what json prints)")
	f.DurationVar(&a.Flags.Timeout, "timeout", 0, "give up after this time, exit code 9 (default: never)")
	f.DurationVar(&a.Flags.RetryFor, "retry-for", 15*time.Second,
		"how long to repeat a call while the server cannot be reached")
	f.BoolVar(
		&a.Flags.UTC,
		"utc",
		false,
		"times in UTC, not in your zone (INGOT_UTC=1 does the same); json and yaml always are",
	)
	f.BoolVar(&a.Flags.NoColor, "no-color", false, "no colours (NO_COLOR does the same)")
	command.Fixed(root, "output", "table", "wide", "json", "yaml", "name")
	a.Must(root.RegisterFlagCompletionFunc("context", a.CompleteContexts))
}
