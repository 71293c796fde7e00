package rollback

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/clock"
)

func TestMain(m *testing.M) { hosttest.Main(m) }

// bootedHost is the part of a host that a boot needs.
type bootedHost struct {
	*Watchdog
	*firewall.Nftables
}

func newBootedHost(root string) bootedHost {
	system, table := system.NewSystem(root, false, slog.Default()), &firewall.Nftables{}
	return bootedHost{&Watchdog{System: system, Table: table, Interfaces: &network.Configurator{System: system}}, table}
}

// bootHost is a host whose files are in a directory of their own. Its kernel's tables are those of the namespace.
func bootHost(t *testing.T) bootedHost {
	t.Helper()
	root := t.TempDir()
	hosttest.WriteFile(t, filepath.Join(root, "proc/sys/kernel/random/boot_id"), "b-1\n")
	return newBootedHost(root)
}

// reboot lets the kernel forget its tables, and loads as the unit does.
func reboot(t *testing.T, h bootedHost) (firewall.LoadResult, error) {
	t.Helper()
	hosttest.Must(t, h.RemoveFirewall(t.Context(), effect.Cause{}))
	return h.LoadFirewall(t.Context())
}

func wantLoaded(t *testing.T, when string, h bootedHost, p firewall.Policy) {
	t.Helper()
	got, err := reboot(t, h)
	if err != nil || !got.Loaded || !got.State.Holds(p) {
		t.Errorf("%s: %+v, %v; want generation %d", when, got, err, p.Generation)
	}
}

// change guards a policy over another one, and applies it.
func change(t *testing.T, h bootedHost, id string, before *firewall.Policy, next firewall.Policy) {
	t.Helper()
	hosttest.Must(t, h.Guard(t.Context(), Guard{
		CommandID: id, Deadline: clock.Boottime() + time.Hour, SetsFirewall: true, Firewall: before, NextFirewall: &next,
	}))
	hosttest.Must(t, h.ApplyFirewall(t.Context(), effect.Cause{CommandID: id}, next))
}

// TestABootLoadsWhatWasCommitted: at no moment of a change does a boot load anything but the last policy that was
// proven.
func TestABootLoadsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	h, ctx := bootHost(t), t.Context()
	first, second, third := policyOf(1), policyOf(2), policyOf(3)
	second.InputDefault, third.SMTPEgressAllowed = firewall.VerdictAccept, true

	if got, err := h.LoadFirewall(ctx); err != nil || got.Loaded || got.State.Present {
		t.Errorf("without any policy: %+v, %v", got, err)
	}
	change(t, h, "c-1", nil, first)
	if got, err := reboot(t, h); err != nil || got.State.Present {
		t.Errorf("the first policy, unproven: %+v, %v", got, err)
	}
	hosttest.Must(t, h.ApplyFirewall(ctx, effect.Cause{}, first))
	hosttest.Must(t, h.CommitGuard(ctx, "c-1"))
	wantLoaded(t, "committed", h, first)

	change(t, h, "c-2", &first, second)
	if got, err := h.LoadFirewall(ctx); err != nil || got.Loaded || !got.State.Holds(second) {
		t.Errorf("a table that is there was replaced: %+v, %v", got, err)
	}
	wantLoaded(t, "the second, unproven", h, first)
	hosttest.Must(t, h.RollBackGuard(ctx, "c-2"))
	wantLoaded(t, "the second, rolled back", h, first)

	// The file cannot be written at the commit, and is what it was: the record of the change goes before it.
	file := filepath.Join(h.Root, bootFirewallFile)
	old, err := os.ReadFile(file)
	hosttest.Must(t, err)
	change(t, h, "c-3", &first, third)
	hosttest.Must(t, os.Remove(file))
	hosttest.Must(t, os.MkdirAll(filepath.Join(file, "in-the-way"), 0o755))
	hosttest.Must(t, h.CommitGuard(ctx, "c-3"))
	wantLoaded(t, "committed and not in the file", h, third)
	err = h.Guard(ctx, Guard{CommandID: "c-4", Deadline: clock.Boottime() + time.Hour})
	if err == nil {
		t.Error("the only record of a committed policy was replaced")
	}
	hosttest.Must(t, os.RemoveAll(file))
	hosttest.Must(t, os.WriteFile(file, old, 0o600))
	wantLoaded(t, "an older file", h, third)
	hosttest.Must(t, h.Guard(ctx, Guard{CommandID: "c-4", Deadline: clock.Boottime() + time.Hour, Hostname: "x"}))
	wantLoaded(t, "another change is pending", h, third)
}

// TestABootWithoutAReadablePolicyIsClosed: no peer reaches the machine, and it reaches its controller.
func TestABootWithoutAReadablePolicyIsClosed(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer6(t)
	hosttest.Listen(t, 22)
	hosttest.Echo(t, p.PID, "25,50052")
	open := firewall.Policy{Generation: 1, InputDefault: firewall.VerdictAccept, SMTPEgressAllowed: true}
	for name, spoil := range map[string]func(text string) string{
		"half of it": func(text string) string { return text[:len(text)/2] },
		"empty":      func(string) string { return "" },
		"edited":     func(text string) string { return strings.Replace(text, `"accept"`, `"drop"`, 1) },
		"nonsense inside": func(string) string {
			return bootFile(t, firewall.Policy{Generation: 7, InputDefault: "perhaps"})
		},
	} {
		h := bootHost(t)
		hosttest.Must(t, h.KeepFirewall(t.Context(), open))
		wantLoaded(t, name+", before", h, open)
		file := filepath.Join(h.Root, bootFirewallFile)
		hosttest.Must(t, os.WriteFile(file, []byte(spoil(hosttest.ReadFile(t, file))), 0o600))
		for _, again := range []string{"", ", again"} { // as systemd does
			got, err := h.LoadFirewall(t.Context())
			if again == "" {
				got, err = reboot(t, h)
			}
			if !errors.Is(err, firewall.ErrPolicyFile) || !got.State.Closed() {
				t.Errorf("%s%s: %+v, %v", name, again, got, err)
			}
		}
		if p.Reaches(22) || hosttest.CanDial("10.9.0.2:25") {
			t.Errorf("%s: not closed", name)
		}
		if !hosttest.Tries(true, func() bool { return hosttest.CanDial("10.9.0.2:50052") }) {
			t.Errorf("%s: the controller is not reached", name)
		}
		// The agent remembers.
		renewed := open
		renewed.Renew = true
		hosttest.Must(t, h.ApplyFirewall(t.Context(), effect.Cause{}, renewed))
		hosttest.Must(t, h.KeepFirewall(t.Context(), open))
		wantLoaded(t, name+", afterwards", h, open)
	}
}

// bootFile returns an undamaged file.
func bootFile(t *testing.T, p firewall.Policy) string {
	t.Helper()
	text := fmt.Sprintf(`{"generation":%d,"input_default":%q,"smtp_egress_allowed":false}`, p.Generation, p.InputDefault)
	return fmt.Sprintf(`{"sha256":%q,"policy":%s}`, hexSHA256([]byte(text)), text)
}

func TestWhichPolicyABootLoads(t *testing.T) {
	t.Parallel()
	file, before, next := policyOf(5), policyOf(4), policyOf(6)
	broken := errors.New("broken")
	guard := func(s GuardState) *Guard {
		return &Guard{State: s, SetsFirewall: true, Firewall: &before, NextFirewall: &next}
	}
	for name, c := range map[string]struct {
		file           *firewall.Policy
		fileErr        error
		guard          *Guard
		guardErr       error
		want           *firewall.Policy
		wantBrokenFile bool
	}{
		"nothing was ever ordered":          {},
		"no change since":                   {file: &file, want: &file},
		"pending":                           {file: &file, guard: guard(GuardPending), want: &file},
		"rolled back":                       {file: &file, guard: guard(GuardRolledBack), want: &file},
		"committed, file from before":       {file: &file, guard: guard(GuardCommitted), want: &next},
		"committed, file broken":            {fileErr: broken, guard: guard(GuardCommitted), want: &next},
		"pending, file broken":              {fileErr: broken, guard: guard(GuardPending), want: &before},
		"rolled back, file missing":         {guard: guard(GuardRolledBack), want: &before},
		"the first one is pending":          {guard: &Guard{State: GuardPending, SetsFirewall: true, NextFirewall: &next}},
		"record broken":                     {file: &file, guardErr: broken, want: &file},
		"file broken, no record":            {fileErr: broken, wantBrokenFile: true},
		"record broken, no file":            {guardErr: broken, wantBrokenFile: true},
		"committed by an older agent":       {guard: &Guard{State: GuardCommitted, SetsFirewall: true}, wantBrokenFile: true},
		"committed without a policy":        {guard: &Guard{State: GuardCommitted}},
		"committed without one, file there": {file: &file, guard: &Guard{State: GuardCommitted}, want: &file},
	} {
		got, err := bootPolicy(c.file, c.fileErr, c.guard, c.guardErr)
		if got != c.want || errors.Is(err, firewall.ErrPolicyFile) != c.wantBrokenFile {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// policyOf lets SSH in from one network.
func policyOf(generation uint64) firewall.Policy {
	return firewall.Policy{
		Generation: generation, InputDefault: firewall.VerdictDrop,
		Allow:       []firewall.AllowRule{{Protocol: "tcp", FromPort: 22, Source: netip.MustParsePrefix("10.1.2.3/8")}},
		RateLimits:  []firewall.RateLimit{{Protocol: "tcp", FromPort: 22, PerSecond: 10, Burst: 20}},
		Controllers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:50052")},
	}
}
