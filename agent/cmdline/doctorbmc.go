package cmdline

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/agent/provider/ipmi"
	"github.com/ingot-metal/ingot/agent/provider/redfish"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
	"github.com/ingot-metal/ingot/internal/doctor"
	"github.com/ingot-metal/ingot/internal/task"
)

const (
	// bmcTime bounds the wait for one BMC; slow ones take five seconds an answer.
	bmcTime = 10 * time.Second
	// bmcsTime bounds the wait for all.
	bmcsTime = 2 * time.Minute
	// bmcsAtOnce is how many are asked side by side.
	bmcsAtOnce = 32
)

// checkBMCs asks every BMC for the data that it returns without a log-in. It sends no password.
func checkBMCs(ctx context.Context, list []*fleetv1.BMCTarget) []doctor.Finding {
	if len(list) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bmcsTime)
	defer cancel()
	findings := make([]doctor.Finding, len(list))
	var next, asked atomic.Int64
	group, _ := task.New(ctx) // each function gets its context
	for range min(bmcsAtOnce, len(list)) {
		group.Go("ask BMCs", func(ctx context.Context) error {
			for i := next.Add(1) - 1; i < int64(len(list)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				err := askBMC(ctx, list[i].GetEndpoint())
				if ctx.Err() != nil {
					return nil // it had less time than it may take
				}
				asked.Add(1)
				if err != nil {
					findings[i] = doctor.Fault("bmc", list[i].GetMachineId()+": "+err.Error(),
						"correct bmc_endpoint, its cable or its VLAN; ingot why "+list[i].GetMachineId())
				}
			}
			return nil
		})
	}
	err := group.Wait()
	out := slices.DeleteFunc(findings, func(f doctor.Finding) bool { return f.Level == "" })
	if err != nil {
		return append(out, doctor.Fault("bmc", err.Error(), "ingot list --select conditions.BMCReachable=false"))
	}
	if n := int64(len(list)) - asked.Load(); n > 0 {
		out = append(out, doctor.Warning("bmc", fmt.Sprintf("%d were not asked within %s", n, bmcsTime),
			"ingot list --select conditions.BMCReachable=false"))
	}
	return append(out, doctor.Well("bmc", fmt.Sprintf("%d of %d BMCs answer", asked.Load()-faults(out), len(list))))
}

// faults counts the findings of what does not work.
func faults(list []doctor.Finding) (n int64) {
	for _, f := range list {
		if f.Level == doctor.Fail {
			n++
		}
	}
	return n
}

func askBMC(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, bmcTime)
	defer cancel()
	a, err := bmcaddr.Parse(endpoint)
	if err != nil {
		return fmt.Errorf("bmc_endpoint: %w", err)
	}
	switch a.Scheme {
	case "ipmi":
		return askIPMI(ctx, net.JoinHostPort(a.Host, cmp.Or(a.Port, "623")))
	case "redfish+http":
		return askRedfish(ctx, "http://"+net.JoinHostPort(a.Host, cmp.Or(a.Port, "80")))
	}
	return askRedfish(ctx, "https://"+net.JoinHostPort(a.Host, cmp.Or(a.Port, "443")))
}

// askRedfish reads the service root, which every service shows without a password, by the reader that is used at work.
func askRedfish(ctx context.Context, base string) error {
	err := redfish.Probe(ctx, redfish.Config{
		URL: base, Timeout: bmcTime,
		// Whose certificate it is matters where a password is sent; here none is.
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, //nolint:gosec // see above
	})
	if err != nil {
		return fmt.Errorf("%s: %w", base, err)
	}
	return nil
}

// askIPMI sends presence pings.
func askIPMI(ctx context.Context, address string) error {
	if err := ipmi.Ping(ctx, address); err != nil {
		return fmt.Errorf("%s does not answer an RMCP ping: %w", address, err)
	}
	return nil
}
