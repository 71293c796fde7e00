package reconfig

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/host/netcheck"
	"github.com/ingot-metal/ingot/agent/host/network"
)

// checked is a host whose checks have the given results, one list a time; the last one stays.
type checked struct {
	*guarded
	results [][]netcheck.Check
	made    int
	before  *network.SavedNetwork
	fails   error
}

func (c *checked) CheckNetwork(
	_ context.Context, _ network.Config, before *network.SavedNetwork, _ []netip.AddrPort,
) ([]netcheck.Check, error) {
	now := c.results[min(c.made, len(c.results)-1)]
	c.made, c.before = c.made+1, before
	return now, c.fails
}

func found(name string, r netcheck.Result) []netcheck.Check {
	return []netcheck.Check{
		{Name: netcheck.Link, Subject: "eth0", Result: netcheck.Pass, Detail: "up"},
		{Name: name, Subject: "eth0 192.0.2.1", Result: r, Detail: "why"},
	}
}

// TestChecksDecide: a failure that stays rolls back, at once where another machine has the address; a warning or an
// unknown is reported and stays.
func TestChecksDecide(t *testing.T) {
	t.Parallel()
	gateway, duplicate := netcheck.Gateway, netcheck.DuplicateAddress
	for name, c := range map[string]struct {
		results [][]netcheck.Check
		outcome fleetv1.CommandResult_Outcome
		reason  baremetalv1.Reason
		shown   string
		sum     string
		once    bool
	}{
		"pass": {[][]netcheck.Check{found(gateway, netcheck.Pass)}, succeeded, noReason, "pass: why",
			"2 pass, 0 warn, 0 fail, 0 unknown", true},
		"unknown": {[][]netcheck.Check{found(gateway, netcheck.Unknown)}, succeeded, noReason, "unknown: why",
			"1 pass, 0 warn, 0 fail, 1 unknown", true},
		"a warning": {[][]netcheck.Check{found(gateway, netcheck.Warn)}, succeeded, noReason, "warn: why",
			"1 pass, 1 warn, 0 fail, 0 unknown", false},
		"a late gateway": {[][]netcheck.Check{found(gateway, netcheck.Fail), found(gateway, netcheck.Pass)}, succeeded,
			noReason, "pass: why", "2 pass, 0 warn, 0 fail, 0 unknown", false},
		"no gateway": {[][]netcheck.Check{found(gateway, netcheck.Fail)}, failed, rolledBack, "fail: why",
			"1 pass, 0 warn, 1 fail, 0 unknown", false},
		"somebody else's": {[][]netcheck.Check{found(duplicate, netcheck.Fail), found(duplicate, netcheck.Pass)}, failed,
			rolledBack, "fail: why", "1 pass, 0 warn, 1 fail, 0 unknown", true},
		"a warning passes": {[][]netcheck.Check{found(gateway, netcheck.Warn), found(gateway, netcheck.Pass)}, succeeded,
			noReason, "pass: why", "2 pass, 0 warn, 0 fail, 0 unknown", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			h := &checked{guarded: r.host, results: c.results}
			r.e.cfg.Host = h
			spec := order(t, 1, "192.0.2.7/24")
			spec.GetReconfig().ConfirmTimeoutMs = 6000
			got := r.execute(spec)
			r.wantResult(got, c.outcome, c.reason)
			key := "check." + c.results[0][1].Name + ".eth0_192.0.2.1"
			if got.Evidence[key] != c.shown || got.Evidence["checks"] != c.sum || c.once != (h.made == 1) || h.before == nil {
				t.Errorf("made %d times, evidence %v", h.made, got.Evidence)
			}
			if c.outcome == failed && (r.address() != "" || !strings.Contains(got.Message, "eth0 192.0.2.1: why")) {
				t.Errorf("address %q, message %q", r.address(), got.Message)
			}
		})
	}
}

// TestChecksAfterARestart: the evidence of a committed change has them though the process that committed it is gone.
func TestChecksAfterARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := &checked{guarded: r.host, results: [][]netcheck.Check{found(netcheck.Gateway, netcheck.Pass)}, fails: errBroken}
	r.e.cfg.Host = h
	job := r.prepare(order(t, 1, "192.0.2.7/24"))
	r.host.fails["PutJSON"] = errBroken
	if _, err := r.e.Execute(t.Context(), job); err == nil {
		t.Fatal("remembered")
	}
	delete(r.host.fails, "PutJSON")
	got := r.resume(job)
	r.wantResult(got, succeeded, noReason)
	if got.Evidence["check.gateway.eth0_192.0.2.1"] != "pass: why" || got.Evidence["check.checks.all"] != "unknown: "+
		errBroken.Error() {
		t.Errorf("evidence %v", got.Evidence)
	}
}
