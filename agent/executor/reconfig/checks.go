package reconfig

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/host/netcheck"
	"github.com/ingot-metal/ingot/agent/host/network"
)

// checkPatience is how long warnings are waited out: a bond's partner and the links of its members take some seconds.
const checkPatience = 8 * time.Second

// maxChecks bounds the checks in the evidence; the summary counts all of them.
const maxChecks = 200

var (
	// errWarnings is why a configuration with warnings is checked again for a while.
	errWarnings = errors.New("checks have warnings, and the network may still be settling")
	// errDuplicate ends a change at once: every second of it disturbs the other owner of the address.
	errDuplicate = errors.New("duplicate address")
)

// checker is a host that can examine a network beyond the way to the controller.
type checker interface {
	CheckNetwork(ctx context.Context, c network.Config, before *network.SavedNetwork,
		controllers []netip.AddrPort) ([]netcheck.Check, error)
}

// proof is the evidence for a configuration before its commit.
type proof struct {
	// from is the address that the controller was reached from, where the configuration names it.
	from   netip.Addr
	checks []netcheck.Check
}

// check examines the ordered interfaces; for a host that cannot it returns nil.
func (e *Executor) check(ctx context.Context, in intent) []netcheck.Check {
	h, ok := e.cfg.Host.(checker)
	if !ok || in.Want.Network == nil {
		return nil
	}
	checks, err := h.CheckNetwork(ctx, *in.Want.Network, in.Saved, e.cfg.Controllers(ctx))
	if err != nil {
		return append(checks, netcheck.Check{Name: "checks", Subject: "all", Result: netcheck.Unknown, Detail: err.Error()})
	}
	return checks
}

// failedChecks returns the failures as one error, and nil where there are none.
func failedChecks(checks []netcheck.Check) error {
	var failed []string
	var kind error
	for _, c := range checks {
		if c.Result == netcheck.Fail {
			if c.Name == netcheck.DuplicateAddress {
				kind = errDuplicate
			}
			failed = append(failed, fmt.Sprintf("%s of %s: %s", c.Name, c.Subject, c.Detail))
		}
	}
	if len(failed) == 0 {
		return nil
	}
	err := fmt.Errorf("the network is not as ordered: %s", strings.Join(failed, "; "))
	if kind != nil {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return err
}

func hasWarnings(checks []netcheck.Check) bool {
	for _, c := range checks {
		if c.Result == netcheck.Warn {
			return true
		}
	}
	return false
}

// evidence has an entry for each check, such as "check.gateway.eth0_192.0.2.1": "pass: …", and their number by result.
func (p proof) evidence() map[string]string {
	out := map[string]string{}
	if p.from.IsValid() {
		out["proven_from"] = p.from.String()
	}
	if len(p.checks) == 0 {
		return out
	}
	count := map[netcheck.Result]int{}
	for k, c := range p.checks {
		count[c.Result]++
		if k < maxChecks {
			out[c.Key()] = string(c.Result) + ": " + c.Detail
		}
	}
	out["checks"] = fmt.Sprintf("%d pass, %d warn, %d fail, %d unknown",
		count[netcheck.Pass], count[netcheck.Warn], count[netcheck.Fail], count[netcheck.Unknown])
	return out
}
