package cmdline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/agent/config"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/session"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/pki"
)

var errDoctor = errors.New("doctor found a fault")

// contactTime limits each attempt to reach a controller.
const contactTime = 10 * time.Second

// level is how a check ended.
type level string

const (
	ok   level = "ok"
	warn level = "warn"
	fail level = "fail"
)

// finding is one line of doctor. Next says what to do about it.
type finding struct {
	level             level
	check, what, next string
}

func (a app) doctor() *cobra.Command {
	o := &options{}
	var output string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what the agent needs, and say what to do about what is missing", Args: cobra.NoArgs,
		Long: "Check what the agent needs. Exit code 3 when a check fails; warnings are not failures.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("%w: --output %q", errUsage, output)
			}
			c, err := o.load()
			if err != nil {
				return err
			}
			list := diagnose(cmd.Context(), c)
			if output == "json" {
				return printFindingsJSON(cmd.OutOrStdout(), list)
			}
			return printFindings(cmd.OutOrStdout(), list)
		},
	}
	o.bindState(cmd)
	o.bindHost(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func printFindingsJSON(w io.Writer, list []finding) error {
	checks := []map[string]string{}
	for _, f := range list {
		checks = append(checks, map[string]string{"level": string(f.level), "check": f.check, "finding": f.what,
			"remedy": f.next})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(map[string]any{"checks": checks}); err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(f finding) bool { return f.level == fail }) {
		return errDoctor
	}
	return nil
}

func printFindings(w io.Writer, list []finding) error {
	var err error
	for _, f := range list {
		_, e := fmt.Fprintf(w, "%-5s %-12s %s\n", f.level, f.check, f.what)
		if f.next != "" {
			_, e2 := fmt.Fprintf(w, "      %-12s -> %s\n", "", f.next)
			e = errors.Join(e, e2)
		}
		err = errors.Join(err, e)
	}
	if slices.ContainsFunc(list, func(f finding) bool { return f.level == fail }) {
		return errors.Join(err, errDoctor)
	}
	return err
}

func diagnose(ctx context.Context, c config.Config) []finding {
	meta, list := checkState(ctx, c)
	list = append(list, checkClock(time.Now(), meta))
	if c.Host == "sim" {
		list = append(list, finding{warn, "host", "this machine is simulated", ""})
	} else if c.Role == "host" {
		list = append(list, checkCapabilities(ctx, host.New(host.Config{}))...)
	} else {
		list = append(list, checkSite(ctx, c)...)
	}
	dir := state.Dir(c.StateDir)
	who, err := dir.Identity()
	if err != nil {
		return append(list, finding{fail, "identity", err.Error(), "run: ingot-agent enroll --token-file FILE"})
	}
	list = append(list, finding{ok, "identity", who.AgentID + ", role " + who.Role, ""})
	now := pki.EffectiveNow(time.Now(), buildTime(), meta.ControllerTime)
	list = append(list, checkCertificate(dir, now))
	addresses := c.Addresses
	if len(addresses) == 0 {
		addresses = who.FleetAddresses
	}
	if len(addresses) == 0 {
		list = append(list, finding{fail, "controller", "no address is known", "set addresses in the configuration"})
	}
	for _, address := range addresses {
		list = append(list, checkController(ctx, dir, address, now)...)
	}
	return list
}

func checkState(ctx context.Context, c config.Config) (meta state.Meta, list []finding) {
	err := withStore(ctx, c, func(s *state.Store) error {
		if err := s.Writable(ctx); err != nil {
			return err
		}
		var err error
		meta, err = s.Meta(ctx)
		return err
	})
	switch {
	case errors.Is(err, state.ErrStorageFull):
		return meta, []finding{{fail, "state", err.Error(), "make room on the file system of " + c.StateDir}}
	case err != nil:
		return meta, []finding{{fail, "state", err.Error(), "run the agent once, as the user that owns " + c.StateDir}}
	}
	list = []finding{{ok, "state", c.StateDir + " can be written", ""}}
	if meta.LockedReason != "" {
		list = append(list, finding{warn, "lock", "locked: " + meta.LockedReason, "run: ingot-agent unlock"})
	}
	return meta, list
}

// clockTolerance is well below the two hours by which certificates are backdated.
const clockTolerance = 5 * time.Minute

func checkClock(now time.Time, meta state.Meta) finding {
	known := pki.EffectiveNow(buildTime(), meta.ControllerTime)
	if known.Sub(now) > clockTolerance {
		return finding{warn, "clock", fmt.Sprintf("is at least %s behind", known.Sub(now).Round(time.Second)),
			"certificates are checked against the later time; set the clock, or run a time service"}
	}
	return finding{ok, "clock", now.UTC().Format(time.RFC3339), ""}
}

func checkCapabilities(ctx context.Context, h host.Host) []finding {
	caps := h.Capabilities()
	list := []finding{{ok, "capabilities", strings.Join(caps, ", "), ""}}
	if len(caps) == 0 {
		list[0] = finding{warn, "capabilities", "none", "run the agent as root, or with the capabilities of its systemd unit"}
	}
	if _, err := h.Identity(ctx); err != nil {
		list = append(list, finding{fail, "boot id", err.Error(), "the agent needs /proc/sys/kernel/random/boot_id"})
	}
	return list
}

func checkCertificate(dir state.Dir, now time.Time) finding {
	creds, err := dir.Credentials()
	if err != nil {
		return finding{fail, "certificate", err.Error(), "enrol again with a new token"}
	}
	err = pki.CheckTimes(creds.Leaf(), now)
	switch {
	case errors.Is(err, pki.ErrExpired):
		return finding{warn, "certificate", err.Error(), "the running agent replaces it by itself, inside the grace period"}
	case err != nil:
		return finding{fail, "certificate", err.Error(), "set the clock"}
	}
	return finding{ok, "certificate", "valid until " + creds.Leaf().NotAfter.Format(time.RFC3339), ""}
}

// checkController goes from the name to the handshake and stops at the first step that fails.
func checkController(ctx context.Context, dir state.Dir, address string, now time.Time) []finding {
	ctx, cancel := context.WithTimeout(ctx, contactTime)
	defer cancel()
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return []finding{{fail, "address", err.Error(), "write it as host:port"}}
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return []finding{{fail, "dns", err.Error(), "check the name servers, or the controller's name"}}
	}
	list := []finding{{ok, "dns", name + " is " + strings.Join(ips, ", "), ""}}
	conn, err := transport.NetDialer()(ctx, address)
	if err != nil {
		return append(list,
			finding{fail, "tcp", err.Error(), "check routes and firewalls on the way, and whether the controller runs"})
	}
	defer conn.Close()
	list = append(list, finding{ok, "tcp", "connected to " + conn.RemoteAddr().String(), ""})
	return append(list, checkHandshake(ctx, dir, address, conn, now))
}

func checkHandshake(ctx context.Context, dir state.Dir, address string, conn net.Conn, now time.Time) finding {
	creds, err := dir.Credentials()
	if err != nil {
		return finding{fail, "mtls", err.Error(), "enrol again with a new token"}
	}
	roots, err := dir.Trust()
	if err != nil {
		return finding{fail, "mtls", err.Error(), "enrol again with a new token"}
	}
	cfg, err := transport.Mutual(creds.TLS(), roots, address, func() time.Time { return now })
	if err == nil {
		err = session.Handshake(ctx, conn, cfg)
	}
	if err != nil {
		return finding{fail, "mtls", err.Error(),
			"compare the controller's CA with that of the token; ask whether this certificate was revoked"}
	}
	return finding{ok, "mtls", "the controller takes this certificate", ""}
}
