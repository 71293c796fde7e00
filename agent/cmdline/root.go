package cmdline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/config"
)

var errUsage = errors.New("wrong usage")

// options are what the flags of several verbs say; they go before the file.
type options struct {
	config    string
	stateDir  string
	host      string
	role      string
	simDir    string
	simID     string
	simScript string
	simDelay  time.Duration
	repave    time.Duration
	region    string
	provider  string
	tokenFile string
	addresses []string
	logFormat string
	logLevel  string
	// interfaces are for role site.
	interfaces []string

	cmd *cobra.Command
}

// Commands returns the tree of commands, for pages that describe it.
func Commands() *cobra.Command { return app{}.root() }

func (a app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "ingot-agent", Short: "Runs machines for an Ingot controller", SilenceUsage: true, SilenceErrors: true,
		Long: `ingot-agent runs on a machine, or for the machines of a site. It dials its controller and
executes its commands.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 doctor found a fault, 4 a newer
process uses this identity, 5 enrolment was refused for good, 6 another process works on the state
directory, 7 the packet filter's policy could not be read and the closed policy is in its place.`,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.AddCommand(
		a.setup(),
		a.enroll(),
		a.run(),
		a.simulate(),
		a.status(),
		a.doctor(),
		a.lock(),
		a.unlock(),
		a.rollback(),
		a.loadFirewall(),
		a.config(),
		a.versionVerb(),
	)
	return root
}

// bindState adds the flags that every verb on a state directory has.
func (o *options) bindState(cmd *cobra.Command) {
	o.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "configuration file (YAML)")
	f.StringVar(&o.stateDir, "state-dir", config.DefaultStateDir, "directory of the agent's memory and identity")
}

// bindHost adds the flags that choose the machine.
func (o *options) bindHost(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.host, "host", "real", "real, or sim for a simulated machine")
	f.StringVar(&o.role, "role", "host", "host, or site for an agent that executes for the machines of its site")
	f.StringSliceVar(&o.interfaces, "site-interface", nil,
		"network device whose segment may be served, for role site; may be repeated")
	f.StringVar(&o.simDir, "sim-dir", "", "directory of the simulated world (default: sim in the state directory)")
	f.StringVar(&o.simID, "sim-id", "", "name of the machine in the simulated world (default: the state directory's name)")
	f.StringVar(&o.simScript, "sim-script", "", "failures of simulated machines, such as reboot:never@1")
	f.DurationVar(&o.simDelay, "sim-delay", 2*time.Second, "time that a simulated reboot takes")
	f.DurationVar(&o.repave, "sim-repave-time", 3*time.Second, "time that a simulated image write takes")
	f.StringVar(&o.region, "region", "", "region, told at enrolment")
	f.StringVar(&o.provider, "provider", "", "provider, told at enrolment")
	f.StringSliceVar(&o.addresses, "address", nil, "fleet address, host:port, instead of those from enrolment")
	f.StringVar(&o.logFormat, "log-format", "", "text or json")
	f.StringVar(&o.logLevel, "log-level", "", "debug, info, warn or error")
}

// bindToken adds the flags for a bootstrap token.
func (o *options) bindToken(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.tokenFile, "token-file", "", "file with the bootstrap token; - is standard input")
}

// load returns the configuration: defaults, then the file, then the flags that were given.
func (o *options) load() (config.Config, error) {
	c := config.Default()
	if o.config != "" {
		var err error
		if c, err = config.Load(o.config); err != nil {
			return c, fmt.Errorf("%w: %w", errUsage, err)
		}
	}
	set := func(flag string, apply func()) {
		if f := o.cmd.Flags().Lookup(flag); f != nil && f.Changed {
			apply()
		}
	}
	set("state-dir", func() { c.StateDir = o.stateDir })
	set("host", func() { c.Host = o.host })
	set("role", func() { c.Role = o.role })
	set("site-interface", func() { c.Site.Interfaces = o.interfaces })
	set("sim-dir", func() { c.Sim.Dir = o.simDir })
	set("sim-id", func() { c.Sim.MachineID = o.simID })
	set("sim-script", func() { c.Sim.Script = o.simScript })
	set("sim-delay", func() { c.Sim.Delay = o.simDelay })
	set("sim-repave-time", func() { c.Sim.RepaveTime = o.repave })
	set("region", func() { c.Region = o.region })
	set("provider", func() { c.Provider = o.provider })
	set("address", func() { c.Addresses = o.addresses })
	set("token-file", func() { c.TokenFile = o.tokenFile })
	set("log-format", func() { c.Log.Format = o.logFormat })
	set("log-level", func() { c.Log.Level = o.logLevel })
	return complete(c)
}

// complete makes paths absolute and fills in what depends on others.
func complete(c config.Config) (config.Config, error) {
	var err error
	if c.StateDir, err = filepath.Abs(c.StateDir); err != nil {
		return c, fmt.Errorf("%w: state directory: %w", errUsage, err)
	}
	if c.Site.CacheDir == "" {
		c.Site.CacheDir = filepath.Join(c.StateDir, "blobs")
	}
	if c.Sim.Dir == "" && (c.Host == "sim" || c.Role != agent.RoleSite) {
		c.Sim.Dir = filepath.Join(c.StateDir, "sim")
	}
	if c.Sim.MachineID == "" {
		c.Sim.MachineID = filepath.Base(c.StateDir)
	}
	if err := c.Check(); err != nil {
		return c, fmt.Errorf("%w: %w", errUsage, err)
	}
	return c, nil
}

// maxTokenBytes is more than a bootstrap token has.
const maxTokenBytes = 64 << 10

// bundle returns the bootstrap token, or "" when there is none.
func (o *options) bundle(c config.Config) (string, error) {
	if c.TokenFile == "" {
		return "", nil
	}
	var b []byte
	var err error
	if c.TokenFile == "-" {
		b, err = io.ReadAll(io.LimitReader(o.cmd.InOrStdin(), maxTokenBytes))
	} else {
		b, err = os.ReadFile(c.TokenFile)
	}
	if err != nil {
		return "", fmt.Errorf("read bootstrap token: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
