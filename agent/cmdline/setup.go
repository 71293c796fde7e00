package cmdline

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/config"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/pki"
)

const (
	// enrolmentPort is that of the controller where --controller names none.
	enrolmentPort = "50053"
	// enrolTime and connectTime limit how long setup waits for the controller.
	enrolTime   = 2 * time.Minute
	connectTime = time.Minute
)

// service is an agent that systemd runs: its unit, its user and its files.
type service struct {
	unit, user, config, stateDir string
}

func serviceOf(role string) service {
	if role == agent.RoleSite {
		return service{"ingot-site", "ingot-site", "/etc/ingot/site.yaml", "/var/lib/ingot-site"}
	}
	return service{"ingot-agent", "", "/etc/ingot/agent.yaml", config.DefaultStateDir}
}

// setupFlags are what setup is asked for.
type setupFlags struct {
	role, controller, output string
	segments                 []string
	dryRun                   bool
	options
}

func (a app) setup() *cobra.Command {
	o := &setupFlags{}
	cmd := &cobra.Command{
		Use: "setup [--controller ADDRESS] --token-file FILE", Short: "Set up this machine as a site, or as a host",
		Long: `Set up this machine as a site, or as a host with --role host: write the configuration, enrol with the
token, enable and start the service, and wait until it is connected. It may be repeated; what is in
place stays as it is.`,
		Example: `  ingot token issue --role site --site r42 --bare |
    ssh root@MACHINE ingot-agent setup --controller ctl.example.net --segment eth1 --token-file -
  ingot-agent setup --role host --token-file token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.cmd = cmd
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.role, "role", agent.RoleSite, "site, or host")
	f.StringVar(&o.controller, "controller", "",
		"host or host:port of the controller's enrolment (default: as the token says)")
	f.StringSliceVar(&o.segments, "segment", nil, "network device that the site serves; may be repeated")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be done, and change nothing")
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	o.bindToken(cmd)
	return cmd
}

// setupChange is one thing that is missing.
type setupChange struct {
	what string
	do   func(context.Context) error
}

func (o *setupFlags) run(ctx context.Context) error {
	if o.output != "text" && o.output != "json" {
		return fmt.Errorf("%w: --output %q", errUsage, o.output)
	}
	if o.role != "host" && o.role != agent.RoleSite {
		return fmt.Errorf("%w: --role %q is not host or site", errUsage, o.role)
	}
	if os.Geteuid() != 0 {
		return errors.New("setup needs root")
	}
	s := serviceOf(o.role)
	missing, err := o.missing(ctx, s)
	if err != nil {
		return err
	}
	words := []string{}
	for _, c := range missing {
		if !o.dryRun {
			if err := c.do(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.what, err)
			}
		}
		words = append(words, c.what)
	}
	return o.report(s, words)
}

func (o *setupFlags) report(s service, words []string) error {
	out := o.cmd.OutOrStdout()
	if o.output == "json" {
		return json.NewEncoder(out).Encode(map[string]any{"changes": words, "dry_run": o.dryRun})
	}
	word := "done"
	if o.dryRun {
		word = "would"
	}
	var b strings.Builder
	for _, w := range words {
		fmt.Fprintf(&b, "%-6s %s\n", word, w)
	}
	switch {
	case len(words) == 0:
		b.WriteString(s.unit + " is enrolled, enabled and connected; nothing was changed.\n")
	case o.dryRun:
		b.WriteString("Nothing was changed.\n")
	default:
		b.WriteString("Next: ingot-agent doctor --config " + s.config + "\n")
	}
	_, err := fmt.Fprint(out, b.String())
	return err
}

// missing lists the changes that are still to be made, in their order.
func (o *setupFlags) missing(ctx context.Context, s service) ([]setupChange, error) {
	var list []setupChange
	text, err := o.wantedConfig(s)
	if err != nil {
		return nil, err
	}
	if text != "" {
		list = append(list, setupChange{"write " + s.config, func(context.Context) error {
			return pki.WriteFile(s.config, []byte(text), 0o644)
		}})
	}
	_, err = state.Dir(s.stateDir).Identity()
	switch {
	case errors.Is(err, state.ErrNotEnrolled):
		if o.tokenFile == "" && !o.dryRun {
			return nil, fmt.Errorf("%w: this machine is not enrolled: give a token with --token-file; - is standard input",
				errUsage)
		}
		list = append(list, setupChange{"enrol", func(ctx context.Context) error { return o.enrol(ctx, s) }})
	case err != nil:
		return nil, err
	}
	// Whether it is connected is no sign of a wrong configuration: its controller may be restarting.
	switch active := s.active(ctx); {
	case active == nil && s.enabled(ctx) && (text != "" || s.outdated(ctx)):
		list = append(list, setupChange{"restart " + s.unit, func(ctx context.Context) error {
			return s.start(ctx, "restart")
		}})
	case s.connected(ctx) != nil || !s.enabled(ctx):
		list = append(list, setupChange{"enable and start " + s.unit, func(ctx context.Context) error {
			return s.start(ctx, "enable", "--now")
		}})
	}
	return list, nil
}

// wantedConfig is the configuration to write; "" when that which is there is right.
func (o *setupFlags) wantedConfig(s service) (string, error) {
	if o.role != agent.RoleSite {
		_, err := config.Load(s.config)
		return "", err
	}
	for _, name := range o.segments {
		if _, err := net.InterfaceByName(name); err != nil {
			return "", fmt.Errorf("there is no network device %s", name)
		}
	}
	have, err := os.ReadFile(s.config)
	if errors.Is(err, os.ErrNotExist) {
		if len(o.segments) == 0 {
			return "", fmt.Errorf("%w: --segment names the network device that the site serves", errUsage)
		}
		return siteText(o.segments), nil
	}
	if err != nil {
		return "", fmt.Errorf("read configuration: %w", err)
	}
	c, err := config.Load(s.config)
	if err != nil {
		return "", err
	}
	all := slices.Clone(c.Site.Interfaces)
	for _, name := range o.segments {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	switch {
	case len(all) == len(c.Site.Interfaces):
		return "", nil
	case string(have) != siteText(c.Site.Interfaces):
		return "", fmt.Errorf("%s was edited: add %s to site.interfaces there, then systemctl restart %s", s.config,
			strings.Join(o.segments, " "), s.unit)
	}
	return siteText(all), nil
}

// siteText is a site's configuration.
func siteText(segments []string) string {
	return "# Written by ingot-agent setup. All keys: /usr/share/doc/ingot-site/examples/site.yaml.\n" +
		"role: site\nstate_dir: /var/lib/ingot-site\nsite:\n" +
		"  # The network devices whose segments may be served. What is served there, the controller says.\n" +
		"  interfaces: [" + strings.Join(segments, ", ") + "]\n"
}

// enrol runs this program's enrolment as the service's user, who then owns what it writes.
func (o *setupFlags) enrol(ctx context.Context, s service) error {
	token, err := o.bundle(config.Config{TokenFile: o.tokenFile})
	if err != nil {
		return err
	}
	bundle, err := pki.ParseBundle(token)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if o.controller != "" {
		bundle.Addresses = []string{withPort(o.controller)}
		if token, err = bundle.Encode(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, enrolTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "enroll", "--config", s.config, "--token-file", "-", "--timeout",
		(enrolTime - 10*time.Second).String())
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH")}
	if s.user != "" {
		uid, gid, err := lookUp(s.user)
		if err != nil {
			return fmt.Errorf("%w: apt install %s", err, s.unit)
		}
		if err := handOver(s.stateDir, uid, gid); err != nil {
			return err
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	cmd.Stdin = strings.NewReader(token + "\n")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("enrol: %w\n%s", err, strings.TrimSpace(log.String()))
	}
	return nil
}

func withPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), enrolmentPort)
}

// start runs systemctl on the unit and waits until its agent is connected.
func (s service) start(ctx context.Context, verb ...string) error {
	if _, err := systemctl(ctx, append(verb, s.unit)...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	tick := time.NewTicker(time.Second / 2)
	defer tick.Stop()
	for {
		err := s.connected(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: ingot-agent doctor --config %s; journalctl -u %s", err, s.config, s.unit)
		case <-tick.C:
		}
	}
}

// outdated reports whether the running service has started before its configuration was written: a setup that ended in
// between has left it so.
func (s service) outdated(ctx context.Context) bool {
	out, err := systemctl(ctx, "show", "--property=ActiveEnterTimestamp", "--value", "--timestamp=unix", s.unit)
	if err != nil {
		return false
	}
	started, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimSpace(out), "@"), 10, 64)
	info, statErr := os.Stat(s.config)
	return err == nil && statErr == nil && info.ModTime().Unix() > started
}

func (s service) enabled(ctx context.Context) bool {
	_, err := systemctl(ctx, "is-enabled", "--quiet", s.unit)
	return err == nil
}

// active reports why the service does not run; nil when it does.
func (s service) active(ctx context.Context) error {
	if state, err := systemctl(ctx, "is-active", s.unit); err != nil {
		return fmt.Errorf("%s is %s", s.unit, cmp.Or(strings.TrimSpace(state), "not active"))
	}
	return nil
}

// connectedStatus is the status that a running agent sends to systemd when it has its session.
const connectedStatus = "connected to the controller"

// connected reports why the running service has no session; nil when it has one.
func (s service) connected(ctx context.Context) error {
	out, err := systemctl(ctx, "show", "--property=StatusText", "--value", s.unit)
	if err != nil {
		return err
	}
	if err := s.active(ctx); err != nil {
		return err
	}
	if strings.TrimSpace(out) != connectedStatus {
		return fmt.Errorf("%s is not connected to the controller", s.unit)
	}
	return nil
}

func systemctl(ctx context.Context, args ...string) (string, error) {
	path, err := exec.LookPath("systemctl")
	if err != nil {
		return "", errors.New("this machine does not run systemd")
	}
	cmd := exec.CommandContext(ctx, path, args...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return string(out), fmt.Errorf("systemctl %s: %s", strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return string(out), fmt.Errorf("systemctl %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
