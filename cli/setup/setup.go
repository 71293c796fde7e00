package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/segment"
)

func (a commands) setupCmd() *cobra.Command {
	o := &install{files: files{root: "/"}, run: runProgram}
	cmd := &cobra.Command{
		Use:   "setup --name NAME [--site SITE --segment INTERFACE]",
		Short: "Set up a controller on this machine, and a site if asked",
		Long: `Set up a controller on this machine: its database, configuration, certificates and service, and a
context of the command line for root and for the user of sudo. With --site and --segment this machine
becomes a site as well: its agent gives addresses and boot files to the machines on that network.

Setup needs root and the packages ingot-controller and ingot-cli; --site needs ingot-site. It may be
repeated: what is in place stays as it is. A part that differs from what was asked for is refused,
never overwritten.`,
		Example: `  ingot setup --name ctl.example.net --dry-run
  ingot setup --name ctl.example.net --site r42 --segment eth1
  ingot setup --name ctl.example.net --database-url -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.getenv = a.app.Config.Getenv
			if err := o.prepare(a.app); err != nil {
				return err
			}
			return a.setup(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "host name or address that clients and agents dial (required)")
	f.StringVar(&o.site, "site", "", "make this machine a site of this name")
	f.StringVar(&o.segment, "segment", "", "network device that the site serves")
	f.StringVar(&o.router, "router", "", "default router of the machines (default: none)")
	f.StringSliceVar(&o.dns, "dns", nil, "name servers of the machines (default: none)")
	f.StringVar(&o.pool, "pool", "", "addresses for machines, FIRST-LAST (default: half of the device's network)")
	f.StringVar(&o.mode, "mode", "dhcp", segment.ModeUsage)
	command.Fixed(cmd, "mode", segment.Modes...)
	f.StringVar(&o.databaseURL, "database-url", "",
		"PostgreSQL elsewhere; - reads it from standard input, as one with a password must be")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be done, and change nothing")
	a.app.Must(cmd.MarkFlagRequired("name"))
	return cmd
}

// install is one run of setup.
type install struct {
	name, site, segment, pool, router, mode, databaseURL string
	dns                                                  []string

	dryRun bool
	getenv func(string) string
	files  files
	run    programs
	// served is the segment of this machine.
	served *pb.Segment
	// secret is the token that this run has made for an admin, by user.
	secret map[string]string
}

// prepare checks and completes what was asked for.
func (o *install) prepare(app *command.App) error {
	o.secret = map[string]string{}
	if (o.site == "") != (o.segment == "") {
		return command.Usagef("give --site and --segment together")
	}
	if (o.pool != "" || o.router != "" || len(o.dns) > 0 || o.mode != "dhcp") && o.site == "" {
		return command.Usagef("--pool, --router, --dns and --mode need --site")
	}
	if o.databaseURL == "-" {
		raw, err := app.ReadInput("-")
		if err != nil {
			return err
		}
		o.databaseURL = strings.TrimSpace(string(raw))
	} else if u, err := url.Parse(o.databaseURL); err != nil {
		return command.Usagef("--database-url is not a URL")
	} else if _, has := u.User.Password(); has {
		return command.Usagef("everybody on this machine can read arguments: give a URL with a password by " +
			"--database-url - on standard input")
	}
	return nil
}

// step is a part of setup.
type step struct {
	name string
	// check returns the present state and the missing changes.
	check func(context.Context) (have string, missing []change, err error)
}

// change is one thing to do, and the program's own words for it.
type change struct {
	what string
	do   func(context.Context) error
}

func (o *install) steps() []step {
	list := []step{
		{"packages", o.checkPackages},
		{"database", o.checkDatabase},
		{"configuration", o.checkConfiguration},
		{"token", o.checkToken},
		{"controller", o.checkController},
		{"context", o.checkContexts},
		{"installer", o.checkInstaller},
	}
	if o.site != "" {
		list = append(list, step{"site", o.checkSite}, step{"site agent", o.checkAgent}, step{"segment", o.checkSegment})
	}
	return list
}

// line is one line of setup's output.
type line struct {
	Step   string `json:"step"`
	Result string `json:"result"` // ok, done or would
	What   string `json:"what"`
}

func (a commands) setup(ctx context.Context, o *install) error {
	var lines []line
	tell := func(l line) error {
		lines = append(lines, l)
		if a.app.Document() {
			return nil
		}
		return a.app.Write(fmt.Sprintf("%-6s %-14s %s\n", l.Result, l.Step, l.What))
	}
	changes := 0
	for _, s := range o.steps() {
		have, missing, err := s.check(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if len(missing) == 0 {
			if err := tell(line{s.name, "ok", have}); err != nil {
				return err
			}
		}
		for _, c := range missing {
			changes++
			l := line{s.name, "would", c.what}
			if !o.dryRun {
				l.Result = "done"
				if err := c.do(ctx); err != nil {
					return fmt.Errorf("%s: %s: %w", s.name, c.what, err)
				}
			}
			if err := tell(l); err != nil {
				return err
			}
		}
	}
	if a.app.Document() {
		return a.writeLines(lines)
	}
	return a.app.Write(o.ending(changes))
}

func (a commands) writeLines(lines []line) error {
	raw, err := json.MarshalIndent(map[string]any{"steps": lines}, "", "  ")
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return command.WriteJSON(a.app, raw)
}

// ending returns the summary of this run, and the next step.
func (o *install) ending(changes int) string {
	var b strings.Builder
	switch {
	case o.dryRun:
		fmt.Fprintf(&b, "\n%d changes would be made; nothing was changed.\n", changes)
		return b.String()
	case changes == 0:
		b.WriteString("\nEverything is in place; nothing was changed.\n")
	default:
		fmt.Fprintf(&b, "\n%d changes were made.\n", changes)
	}
	b.WriteString(`
Next:
  ingot doctor                             check this installation
  ingot image add NAME FILE --sha256 …     add an image to install
  ingot console                            a link to all of it in a browser
`)
	if o.site == "" {
		b.WriteString("  ingot setup --name " + o.name + " --site SITE --segment INTERFACE\n" +
			"                                           make this machine a site as well\n")
	}
	b.WriteString(`
To make another machine a site, with the package ingot-site installed there:
  ingot site add SITE --segment INTERFACE --address ADDRESS/BITS
  ingot token issue --role site --site SITE --bare |
    ssh root@MACHINE ingot-agent setup --controller ` + o.name + ` --segment INTERFACE --token-file -
`)
	return b.String()
}

// checkPackages holds what setup cannot mend: that it may, and has what it needs.
func (o *install) checkPackages(ctx context.Context) (string, []change, error) {
	if runtime.GOOS != "linux" {
		return "", nil, errors.New("setup is for the machine of a controller, which runs Linux")
	}
	if os.Geteuid() != 0 {
		return "", nil, errors.New("setup needs root: sudo ingot setup …")
	}
	if !o.files.exists("run/systemd/system") {
		return "", nil, errors.New("this machine does not run systemd")
	}
	packages := []string{"ingot-controller"}
	if o.site != "" {
		packages = append(packages, "ingot-agent", "ingot-site")
	}
	for _, p := range packages {
		if _, err := o.run(ctx, program{name: "dpkg-query", args: []string{"--show", p}}); err != nil {
			return "", nil, fmt.Errorf("the package %s is not installed: apt install %s", p, p)
		}
	}
	if net.ParseIP(o.name) == nil {
		if _, err := net.DefaultResolver.LookupHost(ctx, o.name); err != nil {
			return "", nil, fmt.Errorf("this machine cannot resolve %s: add it to the DNS or to /etc/hosts (%w)", o.name, err)
		}
	}
	if o.site != "" {
		if err := o.findSegment(); err != nil {
			return "", nil, err
		}
	}
	return strings.Join(packages, ", "), nil, nil
}

// findSegment derives the segment from the device's first IPv4 address.
func (o *install) findSegment() error {
	device, err := net.InterfaceByName(o.segment)
	if err != nil {
		return fmt.Errorf("there is no network device %s: %s", o.segment, deviceNames())
	}
	list, err := device.Addrs()
	if err != nil {
		return fmt.Errorf("read the addresses of %s: %w", o.segment, err)
	}
	for _, a := range list {
		if p, ok := a.(*net.IPNet); ok && p.IP.To4() != nil && p.IP.IsGlobalUnicast() {
			if o.served, err = segment.New(o.segment, p.String(), o.pool); err != nil {
				return err
			}
			if err := segment.In(o.served, o.mode, o.pool); err != nil {
				return err
			}
			return segment.Reach(o.served, o.router, o.dns)
		}
	}
	return fmt.Errorf("%s has no IPv4 address: give it a fixed one, such as 10.42.0.1/24, in the system's network "+
		"configuration", o.segment)
}

func deviceNames() string {
	list, err := net.Interfaces()
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, d := range list {
		names = append(names, d.Name)
	}
	return "there are " + strings.Join(names, " ")
}

// admins are the users who get a context: root, and who has called sudo.
func (o *install) admins() []string {
	if user := o.getenv("SUDO_USER"); user != "" && user != "root" {
		return []string{"root", user}
	}
	return []string{"root"}
}

// configPath is where a user's contexts are.
func configPath(home string) string {
	return client.DefaultPath(func(key string) string {
		if key == "HOME" {
			return home
		}
		return ""
	})
}

// absoluteSelf is the path of this program, for the calls that setup makes of it.
func absoluteSelf() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return filepath.Clean(path), nil
}
