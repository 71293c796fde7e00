// Command fleetsim runs simulated agents against a controller: it registers the machines that are missing, and keeps
// the sessions of all until it is interrupted. Identities stay in a directory, so that the next run needs no enrolment.
//
//	go run ./lab/fleet/fleetsim --server 127.0.0.1:50051 --token-file admin.token --ca-file ca.pem --agents 1000 --dir /tmp/agents
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/lab/fleet"
)

type options struct {
	server, tokenFile, caFile, dir, prefix, script, addresses string
	agents, first                                             int
}

func main() {
	o := options{}
	flag.StringVar(&o.server, "server", "127.0.0.1:50051", "frontpage of the controller, host:port")
	flag.StringVar(&o.tokenFile, "token-file", "", "file with a token of scope admin")
	flag.StringVar(&o.caFile, "ca-file", "", "file with the controller's CA")
	flag.StringVar(&o.dir, "dir", "", "directory of the identities")
	flag.StringVar(&o.prefix, "prefix", "fleet", "names of machines begin with this")
	flag.StringVar(&o.script, "script", "", "times and faults, such as repave:time=30s,fail=0.1;*:slow=0.01")
	flag.StringVar(&o.addresses, "addresses", "",
		"fleet listeners, host:port with commas between; empty means those that enrolment gives")
	flag.IntVar(&o.agents, "agents", 100, "how many agents")
	flag.IntVar(&o.first, "first", 0,
		"index of the first one, where several processes share a fleet; it chooses the source address")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "fleetsim:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	script, err := fleet.ParseScript(o.script)
	if err != nil {
		return err
	}
	token, err := os.ReadFile(o.tokenFile)
	if err != nil {
		return fmt.Errorf("read token: %w", err)
	}
	conn, err := client.Dial(client.Target{Server: o.server, Token: strings.TrimSpace(string(token)), CAFile: o.caFile})
	if err != nil {
		return err
	}
	defer conn.Close()
	specs, err := fleet.Register(ctx, conn, o.dir, o.prefix, o.first, o.agents)
	if err != nil {
		return err
	}
	cfg := fleet.Config{Dir: o.dir, Script: script, Reports: true}
	if o.addresses != "" {
		cfg.Addresses = strings.Split(o.addresses, ",")
	}
	f, err := fleet.Start(ctx, cfg)
	if err != nil {
		return err
	}
	f.Add(specs...)
	watch(ctx, f)
	return f.Stop()
}

const lookEvery = 10 * time.Second

// watch prints how the fleet is until the end.
func watch(ctx context.Context, f *fleet.Fleet) {
	for {
		fmt.Fprintf(os.Stderr, "%s %+v\n", time.Now().Format(time.TimeOnly), f.Status())
		select {
		case <-ctx.Done():
			return
		case <-f.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}
