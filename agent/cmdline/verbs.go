package cmdline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/config"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/obs"
	"github.com/ingot-metal/ingot/internal/pki"
)

func (a app) enroll() *cobra.Command {
	o := &options{}
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "enroll", Short: "Trade a bootstrap token for an identity", Args: cobra.NoArgs,
		Long: `Trade a bootstrap token for an identity. It may be repeated with the same token until it has worked; a machine
that is enrolled already is left as it is. A controller that cannot be reached is tried again until --timeout.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit > 0 {
				ctx, cancel := context.WithTimeout(cmd.Context(), limit)
				defer cancel()
				cmd.SetContext(ctx)
			}
			return a.runEnroll(cmd, o)
		},
	}
	cmd.Flags().DurationVar(&limit, "timeout", 0, "give up after this time (default: never)")
	o.bindState(cmd)
	o.bindHost(cmd)
	o.bindToken(cmd)
	return cmd
}

func (a app) runEnroll(cmd *cobra.Command, o *options) (err error) {
	c, err := o.load()
	if err != nil {
		return err
	}
	bundle, err := o.bundle(c)
	if err != nil {
		return err
	}
	dir := state.Dir(c.StateDir)
	if who, err := dir.Identity(); err == nil {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "already enrolled as %s\n", who.AgentID)
		return err
	}
	if bundle == "" {
		return fmt.Errorf("%w: give a bootstrap token with --token-file; - is standard input", errUsage)
	}
	parsed, err := pki.ParseBundle(bundle)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	log, err := obs.NewLogger(cmd.ErrOrStderr(), c.Log)
	if err != nil {
		return err
	}
	cfg, err := a.agentConfig(c, bundle, log, host.Config{})
	if err != nil {
		return err
	}
	release, err := state.Claim(c.StateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	h, closeHost, err := cfg.Host(cmd.Context(), func() {})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeHost()) }()
	ident, err := h.Identity(cmd.Context())
	if err != nil {
		return fmt.Errorf("identify the machine: %w", err)
	}
	who, err := agent.New(cfg).Enroll(cmd.Context(), h, ident, parsed)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "enrolled as %s (machine %s, role %s)\n", who.AgentID, who.MachineID, who.Role)
	return err
}

func (a app) lock() *cobra.Command {
	o := &options{}
	var reason string
	cmd := &cobra.Command{
		Use: "lock", Short: "Refuse commands that change the machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if reason == "" {
				return fmt.Errorf("%w: --reason says why", errUsage)
			}
			return setLock(cmd, o, reason)
		},
	}
	o.bindState(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why; it is shown with each refused command (required)")
	return cmd
}

func (a app) unlock() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use: "unlock", Short: "Take commands again", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return setLock(cmd, o, "") },
	}
	o.bindState(cmd)
	return cmd
}

func setLock(cmd *cobra.Command, o *options, reason string) error {
	c, err := o.load()
	if err != nil {
		return err
	}
	return withStore(cmd.Context(), c, func(s *state.Store) error {
		if err := s.Lock(cmd.Context(), reason); err != nil {
			return err
		}
		kind := "unlocked"
		if reason != "" {
			kind = "locked"
		}
		e := &fleetv1.Event{Body: &fleetv1.Event_Report{Report: &fleetv1.Report{Kind: kind, Message: reason}}}
		if err := s.Append(cmd.Context(), e, time.Now()); err != nil {
			return err
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), kind)
		return err
	})
}

// withStore opens the memory of an agent, running or not. It does not make one.
func withStore(ctx context.Context, c config.Config, fn func(*state.Store) error) (err error) {
	if _, err := os.Stat(filepath.Join(c.StateDir, state.FileName)); err != nil {
		return fmt.Errorf("there is no agent's state in %s: %w", c.StateDir, err)
	}
	s, err := state.Open(ctx, state.Config{Dir: c.StateDir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return fn(s)
}

// statusReport is what status shows.
type statusReport struct {
	StateDir       string            `json:"state_dir"`
	Running        bool              `json:"running"`
	AgentID        string            `json:"agent_id"`
	MachineID      string            `json:"machine_id,omitempty"`
	Role           string            `json:"role"`
	Site           string            `json:"site,omitempty"`
	FleetAddresses []string          `json:"fleet_addresses"`
	Certificate    certificateReport `json:"certificate"`
	StateID        string            `json:"state_id"`
	LockedReason   string            `json:"locked_reason,omitempty"`
	BufferedEvents int64             `json:"buffered_events"`
	ControllerTime time.Time         `json:"last_controller_time,omitzero"`
	Commands       []commandReport   `json:"commands"`
}

type certificateReport struct {
	Fingerprint string    `json:"fingerprint"`
	NotBefore   time.Time `json:"not_before"`
	NotAfter    time.Time `json:"not_after"`
}

type commandReport struct {
	ID         string    `json:"command_id"`
	State      string    `json:"state"`
	TargetID   string    `json:"target_id"`
	ReceivedAt time.Time `json:"received_at"`
}

func (a app) status() *cobra.Command {
	o := &options{}
	var output string
	cmd := &cobra.Command{
		Use: "status", Short: "Show what the agent is and holds", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("%w: --output %q", errUsage, output)
			}
			c, err := o.load()
			if err != nil {
				return err
			}
			r, err := readStatus(cmd.Context(), c)
			if err != nil {
				return err
			}
			if output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(r)
			}
			return r.print(cmd.OutOrStdout())
		},
	}
	o.bindState(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func readStatus(ctx context.Context, c config.Config) (statusReport, error) {
	dir := state.Dir(c.StateDir)
	who, err := dir.Identity()
	if err != nil {
		return statusReport{}, err
	}
	creds, err := dir.Credentials()
	if err != nil {
		return statusReport{}, err
	}
	leaf := creds.Leaf()
	r := statusReport{
		StateDir: c.StateDir, AgentID: who.AgentID, MachineID: who.MachineID, Role: who.Role, Site: who.Site,
		FleetAddresses: who.FleetAddresses, Running: running(c.StateDir), Commands: []commandReport{},
		Certificate: certificateReport{Fingerprint: pki.Fingerprint(leaf.Raw), NotBefore: leaf.NotBefore,
			NotAfter: leaf.NotAfter},
	}
	err = withStore(ctx, c, func(s *state.Store) error { return r.readStore(ctx, s) })
	return r, err
}

// running is true while another process has claimed the directory.
func running(dir string) bool {
	release, err := state.Claim(dir)
	if err != nil {
		return errors.Is(err, state.ErrInUse)
	}
	_ = release() // only a lock is given back
	return false
}

func (r *statusReport) readStore(ctx context.Context, s *state.Store) error {
	meta, err := s.Meta(ctx)
	if err != nil {
		return err
	}
	r.StateID, r.LockedReason, r.ControllerTime = meta.StateID, meta.LockedReason, meta.ControllerTime
	if r.BufferedEvents, err = s.BufferedEvents(ctx); err != nil {
		return err
	}
	list, err := s.Unsettled(ctx)
	for _, c := range list {
		r.Commands = append(r.Commands, commandReport{ID: c.ID, State: c.State, TargetID: c.TargetID,
			ReceivedAt: c.ReceivedAt})
	}
	return err
}

func (r statusReport) print(w io.Writer) error {
	var err error
	line := func(name string, value any) {
		_, e := fmt.Fprintf(w, "%-18s %v\n", name, value)
		err = errors.Join(err, e)
	}
	line("agent", r.AgentID)
	line("machine", r.MachineID)
	line("role", r.Role)
	line("running", r.Running)
	line("controllers", r.FleetAddresses)
	line("certificate", "until "+r.Certificate.NotAfter.Format(time.RFC3339))
	line("state id", r.StateID)
	if r.LockedReason != "" {
		line("LOCKED", r.LockedReason)
	}
	line("buffered events", r.BufferedEvents)
	line("open commands", len(r.Commands))
	for _, c := range r.Commands {
		line("", c.ID+" "+c.State+" for "+c.TargetID)
	}
	return err
}

func (a app) config() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Work with the configuration file"}
	o := &options{}
	check := &cobra.Command{
		Use: "check [FILE]", Short: "Report everything that is wrong with the configuration", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.config = args[0]
			}
			if o.config == "" {
				return fmt.Errorf("%w: name the file", errUsage)
			}
			if _, err := o.load(); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "configuration is good")
			return err
		},
	}
	o.bindState(check)
	cmd.AddCommand(check)
	return cmd
}

func (a app) versionVerb() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "ingot-agent", a.version)
			return err
		},
	}
}
