package cmdline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/config"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/session"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/doctor"
	"github.com/ingot-metal/ingot/internal/pki"
)

// contactTime limits each attempt to reach a controller.
const contactTime = 10 * time.Second

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
				return doctor.JSON(cmd.OutOrStdout(), list)
			}
			return doctor.Text(cmd.OutOrStdout(), list)
		},
	}
	o.bindState(cmd)
	o.bindHost(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func diagnose(ctx context.Context, c config.Config) []doctor.Finding {
	meta, list := checkState(ctx, c)
	list = append(list, checkClock(time.Now(), meta), doctor.Synchronized())
	if c.Host == "sim" {
		list = append(list, doctor.Warning("host", "this machine is simulated", ""))
	} else if c.Role == "host" {
		list = append(list, checkCapabilities(ctx, host.New(host.Config{}))...)
		list = append(list, doctor.Unit(ctx, "ingot-agent.service")...)
	} else {
		list = append(list, checkSite(ctx, c)...)
		list = append(list, doctor.Unit(ctx, "ingot-site.service", unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW)...)
	}
	dir := state.Dir(c.StateDir)
	who, err := dir.Identity()
	if err != nil {
		return append(list, doctor.Fault("identity", err.Error(), "run: ingot-agent enroll --token-file FILE"))
	}
	list = append(list, doctor.Well("identity", who.AgentID+", role "+who.Role))
	now := pki.EffectiveNow(time.Now(), buildTime(), meta.ControllerTime)
	list = append(list, checkCertificate(dir, now))
	addresses := c.Addresses
	if len(addresses) == 0 {
		addresses = who.FleetAddresses
	}
	if len(addresses) == 0 {
		list = append(list, doctor.Fault("controller", "no address is known", "set addresses in the configuration"))
	}
	for _, address := range addresses {
		list = append(list, checkController(ctx, dir, address, now)...)
	}
	return list
}

func checkState(ctx context.Context, c config.Config) (meta state.Meta, list []doctor.Finding) {
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
		return meta, []doctor.Finding{doctor.Fault("state", err.Error(), "make room on the file system of "+c.StateDir)}
	case err != nil:
		return meta,
			[]doctor.Finding{doctor.Fault("state", err.Error(), "run the agent once, as the user that owns "+c.StateDir)}
	}
	list = []doctor.Finding{doctor.Well("state", c.StateDir+" can be written")}
	if meta.LockedReason != "" {
		list = append(list, doctor.Warning("lock", "locked: "+meta.LockedReason, "run: ingot-agent unlock"))
	}
	return meta, list
}

// clockTolerance is well below the two hours by which certificates are backdated.
const clockTolerance = 5 * time.Minute

func checkClock(now time.Time, meta state.Meta) doctor.Finding {
	known := pki.EffectiveNow(buildTime(), meta.ControllerTime)
	if known.Sub(now) > clockTolerance {
		return doctor.Warning("clock", fmt.Sprintf("is at least %s behind", known.Sub(now).Round(time.Second)),
			"certificates are checked against the later time; set the clock, or run a time service")
	}
	return doctor.Well("clock", now.UTC().Format(time.RFC3339))
}

func checkCapabilities(ctx context.Context, h host.Host) []doctor.Finding {
	caps := h.Capabilities()
	list := []doctor.Finding{doctor.Well("capabilities", strings.Join(caps, ", "))}
	if len(caps) == 0 {
		list[0] = doctor.Warning("capabilities", "none",
			"run the agent as root, or with the capabilities of its systemd unit")
	}
	if _, err := h.Identity(ctx); err != nil {
		list = append(list, doctor.Fault("boot id", err.Error(), "the agent needs /proc/sys/kernel/random/boot_id"))
	}
	return list
}

func checkCertificate(dir state.Dir, now time.Time) doctor.Finding {
	creds, err := dir.Credentials()
	if err != nil {
		return doctor.Fault("certificate", err.Error(), "enrol again with a new token")
	}
	err = pki.CheckTimes(creds.Leaf(), now)
	switch {
	case errors.Is(err, pki.ErrExpired):
		return doctor.Warning("certificate", err.Error(), "the running agent replaces it by itself, inside the grace period")
	case err != nil:
		return doctor.Fault("certificate", err.Error(), "set the clock")
	}
	return doctor.Well("certificate", "valid until "+creds.Leaf().NotAfter.Format(time.RFC3339))
}

// checkController goes from the name to the handshake and stops at the first step that fails.
func checkController(ctx context.Context, dir state.Dir, address string, now time.Time) []doctor.Finding {
	ctx, cancel := context.WithTimeout(ctx, contactTime)
	defer cancel()
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return []doctor.Finding{doctor.Fault("address", err.Error(), "write it as host:port")}
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return []doctor.Finding{doctor.Fault("dns", err.Error(), "check the name servers, or the controller's name")}
	}
	list := []doctor.Finding{doctor.Well("dns", name+" is "+strings.Join(ips, ", "))}
	conn, err := transport.NetDialer()(ctx, address)
	if err != nil {
		return append(list,
			doctor.Fault("tcp", err.Error(), "check routes and firewalls on the way, and whether the controller runs"))
	}
	defer conn.Close()
	list = append(list, doctor.Well("tcp", "connected to "+conn.RemoteAddr().String()))
	return append(list, checkHandshake(ctx, dir, address, conn, now))
}

func checkHandshake(ctx context.Context, dir state.Dir, address string, conn net.Conn, now time.Time) doctor.Finding {
	creds, err := dir.Credentials()
	if err != nil {
		return doctor.Fault("mtls", err.Error(), "enrol again with a new token")
	}
	roots, err := dir.Trust()
	if err != nil {
		return doctor.Fault("mtls", err.Error(), "enrol again with a new token")
	}
	cfg, err := transport.Mutual(creds.TLS(), roots, address, func() time.Time { return now })
	if err == nil {
		err = session.Handshake(ctx, conn, cfg)
	}
	if err != nil {
		return doctor.Fault("mtls", err.Error(),
			"compare the controller's CA with that of the token; ask whether this certificate was revoked")
	}
	return doctor.Well("mtls", "the controller takes this certificate")
}
