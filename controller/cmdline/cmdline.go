// Package cmdline is the command line of ingot-controller: run, migrate, tokens, configuration.
package cmdline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/doctor"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/obs"
)

// flags are shared by the commands.
type flags struct {
	config  string
	dev     bool
	dataDir string
	names   []string
	listen  config.Listen
}

// Main runs the command line and returns the exit code: 0 success, 1 failure, 2 a configuration with mistakes, 3 a
// fault that doctor found.
func Main(args []string, version string) int {
	if version == "" {
		version = "dev"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := root(version)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	var problems config.Problems
	switch {
	case err == nil:
		return 0
	case errors.Is(err, doctor.ErrFault):
		return 3
	case errors.As(err, &problems):
		fmt.Fprintln(os.Stderr, problems.Error())
		return 2
	default:
		fmt.Fprintln(os.Stderr, "error: "+err.Error())
		return 1
	}
}

// Commands returns the tree of commands, for pages that describe it.
func Commands() *cobra.Command { return root("") }

func root(version string) *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "ingot-controller",
		Short: "Run fleets of bare-metal machines",
		Long: `ingot-controller keeps the truth about a fleet in PostgreSQL, decides what happens next, and tells agents.

It listens for clients (TLS and bearer tokens), for enrolled agents (mTLS), for agents that enrol, and for HTTP health
checks and metrics. SIGHUP reads the bearer tokens again without dropping a stream.`,
		Example: `  # Try it: a private PostgreSQL below the data directory, a token in DIR/admin-token
  ingot-controller run --dev --data-dir ./ingot-data

  # For real
  ingot-controller token add platform-team --scope operate
  ingot-controller run --config /etc/ingot/controller.yaml`,
		SilenceUsage: true, SilenceErrors: true, Version: version,
	}
	p := cmd.PersistentFlags()
	p.StringVar(&f.config, "config", "", "configuration file (see `ingot-controller config sample`)")
	p.BoolVar(&f.dev, "dev", false,
		"start a private PostgreSQL below the data directory, make an admin token, and serve the web console")
	p.StringVar(&f.dataDir, "data-dir", "", "where keys live, and with --dev the database")
	p.StringSliceVar(&f.names, "name", nil, "host name or address that certificates are made out to (repeatable)")
	p.StringVar(&f.listen.Frontpage, "listen", "", "address for clients")
	p.StringVar(&f.listen.Fleet, "listen-fleet", "", "address for enrolled agents")
	p.StringVar(&f.listen.Enrolment, "listen-enrolment", "", "address for agents that enrol")
	p.StringVar(&f.listen.HTTP, "listen-http", "", "address for health and metrics")
	p.StringVar(&f.listen.REST, "listen-rest", "", "address for JSON over HTTPS and for the web console")
	cmd.AddCommand(runCommand(f, version), migrateCommand(f), tokenCommand(f), keysCommand(), configCommand(f),
		afterRestoreCommand(f),
		doctorCommand(f), readyCommand(f), backupCommand(f, version), restoreCommand(f), supportCommand(f, version))
	return cmd
}

// devREST is where a controller for trying out serves the web console.
const devREST = ":50055"

// load reads the configuration and lays the flags over it.
func (f *flags) load() (*config.Config, error) {
	return config.Load(f.config, func(c *config.Config) {
		c.Dev = f.dev
		setIf(&c.DataDir, f.dataDir)
		setIf(&c.Listen.Frontpage, f.listen.Frontpage)
		setIf(&c.Listen.Fleet, f.listen.Fleet)
		setIf(&c.Listen.Enrolment, f.listen.Enrolment)
		setIf(&c.Listen.HTTP, f.listen.HTTP)
		setIf(&c.Listen.REST, f.listen.REST)
		if len(f.names) > 0 {
			c.TLS.Names = f.names
		}
		if f.dev && c.TokensFile == config.Default().TokensFile {
			c.TokensFile = filepath.Join(c.DataDir, "tokens")
		}
		// One that serves its clients elsewhere is not the only one on this machine.
		if f.dev && c.Listen.REST == "" && c.Listen.Frontpage == config.Default().Listen.Frontpage {
			c.Listen.REST = devREST
		}
	})
}

func setIf(into *string, value string) {
	if value != "" {
		*into = value
	}
}

func runCommand(f *flags, version string) *cobra.Command {
	var ready string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Serve until told to stop",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.load()
			if err != nil {
				return err
			}
			if err := failpoint.FromEnv(); err != nil {
				return err
			}
			log, err := obs.NewLogger(cmd.ErrOrStderr(), c.Log)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), *c, controller.Options{Logger: log, Version: version}, ready)
		},
	}
	cmd.Flags().StringVar(&ready, "addresses-file", "", "write the listeners' addresses to this file once they are open")
	return cmd
}

// withStore runs fn with the configured database.
func withStore(ctx context.Context, f *flags, fn func(*store.Store) error) error {
	c, err := f.load()
	if err != nil {
		return err
	}
	if !c.Dev {
		return asOwner(c.DataDir, func() error { return useStore(ctx, c, fn) })
	}
	return useStore(ctx, c, fn)
}

func useStore(ctx context.Context, c *config.Config, fn func(*store.Store) error) error {
	url, stop, err := controller.OpenDatabase(ctx, *c, nil)
	if err != nil {
		return err
	}
	defer stop()
	s, err := store.New(ctx, store.Config{URL: url, PoolSize: 2})
	if err != nil {
		return err
	}
	defer s.Close()
	return fn(s)
}

func migrateCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:       "migrate [up|down|version]",
		Short:     "Bring the schema up to date, remove it, or show its version",
		Long:      "migrate up applies what is missing and is safe to repeat. migrate down removes every table and all data.",
		ValidArgs: []string{"up", "down", "version"},
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd.Context(), f, func(s *store.Store) error {
				what := "up"
				if len(args) > 0 {
					what = args[0]
				}
				if err := migrate(cmd.Context(), s, what); err != nil || what == "down" {
					return err
				}
				v, err := s.Schema.SchemaVersion(cmd.Context())
				if err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "schema version %d\n", v)
				}
				return err
			})
		},
	}
}

func migrate(ctx context.Context, s *store.Store, what string) error {
	switch what {
	case "up":
		if err := s.Schema.MigrateUp(ctx); err != nil {
			return err
		}
		return s.Catalog.SeedPlans(ctx, time.Now())
	case "down":
		return s.Schema.MigrateDown(ctx)
	default:
		return nil
	}
}

func tokenCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Manage bearer tokens"}
	var scope, file string
	var replace bool
	add := &cobra.Command{
		Use:   "add NAME",
		Short: "Make a bearer token, store its hash, and print it once",
		Long: "The name is the actor in the audit log. A running controller takes the new token at its next SIGHUP " +
			"(systemctl reload).",
		Example: "  ingot-controller token add platform-team --scope operate",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.load()
			if err != nil && !f.dev {
				c = config.Default()
			}
			setIf(&c.TokensFile, file)
			sc, err := access.ParseScope(scope)
			if err != nil {
				return err
			}
			_, missing := os.Stat(c.TokensFile)
			put := auth.AddToken
			if replace {
				put = auth.ReplaceToken
			}
			secret, err := put(c.TokensFile, args[0], sc)
			if err == nil && missing != nil {
				err = shareWith(c.DataDir, c.TokensFile)
			}
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), secret)
			}
			return err
		},
	}
	add.Flags().StringVar(&scope, "scope", "operate", "read, operate, admin, or report (an installer's)")
	add.Flags().StringVar(&file, "file", "", "the file of hashes, in place of the configuration's tokens_file")
	add.Flags().BoolVar(&replace, "replace", false, "end the token that has this name")
	cmd.AddCommand(add)
	return cmd
}

// shareWith lets the controller's user, who owns the data directory, read a file that root has made.
func shareWith(dataDir, file string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dataDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the controller's user: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 {
		return nil
	}
	if err := errors.Join(os.Chown(file, 0, int(owner.Gid)), os.Chmod(file, 0o640)); err != nil {
		return fmt.Errorf("let the controller read %s: %w", file, err)
	}
	return nil
}

func configCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check or print a configuration"}
	cmd.AddCommand(&cobra.Command{
		Use: "check", Short: "Report every mistake in the configuration at once", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.load(); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "the configuration is good")
			return nil
		},
	}, &cobra.Command{
		Use: "sample", Short: "Print a commented configuration file", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Sample)
			return err
		},
	})
	return cmd
}

func afterRestoreCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "after-restore",
		Short: "Tell the database that it was restored from a backup or failed over",
		Long: `after-restore gives the database a new incarnation: cursors of ListMachines and WatchOperations from before are
refused with CURSOR_EXPIRED, so that no client misses what the backup did not hold, and nothing is started on a machine
until an admin lifts the freeze with "ingot server thaw": what the backup forgot must not be done again. Run it before
starting a controller.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd.Context(), f, func(s *store.Store) error {
				now, err := s.Sessions.Time(cmd.Context()) // controllers compare it with times of the database
				if err != nil {
					return err
				}
				return s.Incarnations.Restored(cmd.Context(), now)
			})
		},
	}
}
