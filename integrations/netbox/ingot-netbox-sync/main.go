// Command ingot-netbox-sync keeps NetBox and a controller in step; see integrations/netbox/README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/integrations/netbox"
	"github.com/ingot-metal/ingot/internal/clock"
)

// What the program ends with.
const (
	exitFailed    = 1
	exitUsage     = 2
	exitConflicts = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are those of the command line.
type options struct {
	netbox, netboxCA, tokenFile    string
	server, caFile, ingotTokenFile string
	devices, provider              string
	maxCreate                      int
	dryRun, setup                  bool
	interval                       time.Duration
	netboxToken, ingotToken        string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("ingot-netbox-sync", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.netbox, "netbox", os.Getenv("NETBOX_URL"), "address of NetBox (NETBOX_URL)")
	f.StringVar(&o.netboxCA, "netbox-ca-file", os.Getenv("NETBOX_CA_FILE"), "root of its certificate (NETBOX_CA_FILE)")
	f.StringVar(&o.tokenFile, "netbox-token-file", os.Getenv("NETBOX_TOKEN_FILE"),
		"file with its API token (NETBOX_TOKEN_FILE, or the token itself in NETBOX_TOKEN)")
	f.StringVar(&o.server, "server", os.Getenv("INGOT_SERVER"), "host:port of the controller (INGOT_SERVER)")
	f.StringVar(&o.caFile, "ca-file", os.Getenv("INGOT_CA_FILE"), "root of its certificate (INGOT_CA_FILE)")
	f.StringVar(&o.ingotTokenFile, "token-file", os.Getenv("INGOT_TOKEN_FILE"),
		"file with a bearer token of scope operate (INGOT_TOKEN_FILE, or the token itself in INGOT_TOKEN)")
	f.StringVar(&o.devices, "devices", "", "which of NetBox's devices are machines, such as 'role=server&site=oslo'")
	f.StringVar(&o.provider, "provider", "", "what drives new machines: agent (default), maas or fake")
	f.IntVar(&o.maxCreate, "max-create", 100, "machines that a pass may create; if there are more, it writes nothing")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the differences and change nothing")
	f.BoolVar(&o.setup, "setup", false, "make the custom fields in NetBox that are missing, and end")
	f.DurationVar(&o.interval, "interval", 0, "compare again and again, with this pause; 0 compares once")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("%q is no option", f.Arg(0))
	case o.netbox == "":
		return o, errors.New("--netbox is required")
	case o.server == "" && !o.setup:
		return o, errors.New("--server is required")
	case o.devices == "" && !o.setup:
		return o, errors.New("--devices is required: without it every switch would become a machine")
	}
	o.netboxToken, o.ingotToken = os.Getenv("NETBOX_TOKEN"), os.Getenv("INGOT_TOKEN")
	if o.netboxToken == "" {
		raw, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return o, fmt.Errorf("read NetBox's token: %w", err)
		}
		o.netboxToken = strings.TrimSpace(string(raw))
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "ingot-netbox-sync:", err)
		return exitUsage
	}
	conflicts, err := sync(ctx, o, stdout, stderr)
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "ingot-netbox-sync:", err)
		return exitFailed
	case conflicts:
		return exitConflicts
	}
	return 0
}

func sync(ctx context.Context, o options, stdout, stderr io.Writer) (conflicts bool, err error) {
	query, err := url.ParseQuery(o.devices)
	if err != nil {
		return false, fmt.Errorf("--devices: %w", err)
	}
	n, err := netbox.Dial(ctx, netbox.Config{URL: o.netbox, CAFile: o.netboxCA, Token: o.netboxToken})
	if err != nil {
		return false, err
	}
	if o.setup {
		made, err := n.Setup(ctx)
		fmt.Fprintf(stdout, "made %d custom fields in NetBox %s: %s\n", len(made), n.Version, strings.Join(made, " "))
		return false, err
	}
	conn, err := client.Dial(client.Config{Server: o.server, CAFile: o.caFile, Token: o.ingotToken,
		TokenFile: o.ingotTokenFile})
	if err != nil {
		return false, err
	}
	defer conn.Close()
	s := &netbox.Sync{NetBox: n, Conn: conn, Query: query, Provider: o.provider, MaxCreate: o.maxCreate, DryRun: o.dryRun,
		Out: stdout}
	for {
		result, err := s.Pass(ctx)
		if o.interval == 0 || ctx.Err() != nil {
			fmt.Fprintln(stdout, result)
			return result.Conflicts > 0, err
		}
		if err != nil {
			fmt.Fprintln(stderr, "ingot-netbox-sync:", err) // the next pass makes it good
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-clock.Real().After(o.interval):
		}
	}
}
