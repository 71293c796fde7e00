package host

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/network/networkd"
	"github.com/ingot-metal/ingot/agent/host/rollback"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// card is a cable of the namespace with a static address.
func card(name string, addresses ...string) network.Interface {
	i := network.Interface{Name: name}
	for _, a := range addresses {
		i.Addresses = append(i.Addresses, prefix(a))
	}
	return i
}

func wantIn(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}

func TestNetworkdAppliesAndRestores(t *testing.T) {
	t.Parallel()
	if !withNetworkd(t) {
		return
	}
	h, _ := unguarded(t)
	hosttest.NewPeer(t)
	c := network.Config{Interfaces: []network.Interface{{
		Name: "here", Addresses: []netip.Prefix{prefix("192.0.2.7/24"), prefix("2001:db8::7/64")}, MTU: 1400,
		Gateway: netip.MustParseAddr("192.0.2.1"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
		Search: []string{"example.org"},
		Routes: []network.Route{{Destination: prefix("10.20.0.0/16"), Via: netip.MustParseAddr("192.0.2.2"), Metric: 50},
			{Destination: prefix("198.51.100.0/24")}},
	}}}
	saved, err := h.SaveNetwork(t.Context(), c)
	hosttest.Must(t, err)
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, c))
	wantIn(
		t,
		hosttest.Shell(t, "ip addr show here; ip route"),
		"192.0.2.7/24",
		"2001:db8::7/64",
		"mtu 1400",
		"default via 192.0.2.1",
		"10.20.0.0/16 via 192.0.2.2",
		"metric 50",
		"198.51.100.0/24",
	)
	wantIn(t, hosttest.Shell(t, "cat /etc/resolv.conf"), "nameserver 192.0.2.53", "search example.org")
	if strings.Contains(hosttest.Shell(t, "ip addr show here"), "10.9.0.1") {
		t.Error("the old address is still there")
	}
	from, err := h.NetworkSource(t.Context(), c, netip.MustParseAddr("203.0.113.9"))
	if err != nil || from != netip.MustParseAddr("192.0.2.7") {
		t.Errorf("a way over the gateway comes from %v, %v", from, err)
	}

	hosttest.Must(t, h.RestoreNetwork(t.Context(), effect.Cause{}, saved))
	after := hosttest.Shell(t, "ip addr show here; ip route; ls /etc/systemd/network; ls -la /etc/resolv.conf || true")
	wantIn(t, after, "10.9.0.1/24", "mtu 1500")
	for _, gone := range []string{"192.0.2.7", "05-ingot", "default via"} {
		if strings.Contains(after, gone) {
			t.Errorf("%s has survived the rollback:\n%s", gone, after)
		}
	}
}

func TestNetworkdChangesAnAddressAndShowsDrift(t *testing.T) {
	t.Parallel()
	if !withNetworkd(t) {
		return
	}
	h, _ := unguarded(t)
	hosttest.NewPeer(t)
	foreign := "[Match]\nName=elsewhere\n"
	hosttest.WriteFile(t, "/etc/systemd/network/10-foreign.network", foreign)
	one := network.Config{Interfaces: []network.Interface{card("here", "10.9.0.1/24")}}
	two := network.Config{Interfaces: []network.Interface{card("here", "10.9.0.77/24")}}
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, one))
	saved, err := h.SaveNetwork(t.Context(), two)
	hosttest.Must(t, err)
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, two))
	if s, err := h.Network(t.Context(), two, nil); err != nil || s.Diff != "" {
		t.Fatalf("right after: %v\n%s", err, s.Diff)
	}

	hosttest.Shell(t, "ip addr add 10.9.0.99/24 dev here; ip link set here mtu 1300; echo '# mine' "+
		">>/etc/systemd/network/05-ingot-here.network")
	s, err := h.Network(t.Context(), two, nil)
	hosttest.Must(t, err)
	wantIn(t, s.Diff,
		"--- committed/etc/systemd/network/05-ingot-here.network\n+++ host/etc/systemd/network/05-ingot-here.network\n",
		"+# mine\n", "--- committed/kernel\n+++ host/kernel\n", "+here: address 10.9.0.99/24\n")

	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, two)) // who calls this has decided to overwrite it
	if s, err := h.Network(t.Context(), two, nil); err != nil || s.Diff != "" {
		t.Errorf("after applying again: %v\n%s", err, s.Diff)
	}
	hosttest.Must(t, h.RestoreNetwork(t.Context(), effect.Cause{}, saved))
	if s, err := h.Network(t.Context(), one, nil); err != nil || s.Diff != "" {
		t.Errorf("after the rollback: %v\n%s", err, s.Diff)
	}
	if b, err := os.ReadFile("/etc/systemd/network/10-foreign.network"); err != nil || string(b) != foreign {
		t.Errorf("the file of somebody else is now %q, %v", b, err)
	}
}

func TestGuardGoesBack(t *testing.T) {
	t.Parallel()
	if !withNetworkd(t) {
		return
	}
	h, armed := unguarded(t)
	hosttest.NewPeer(t)
	c := network.Config{Interfaces: []network.Interface{card("here", "192.0.2.7/24")}}
	saved, err := h.SaveNetwork(t.Context(), c)
	hosttest.Must(t, err)
	hosttest.Must(t, h.Guard(t.Context(), rollback.Guard{CommandID: "c1", Deadline: clock.Boottime(), Network: &saved}))
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, c))
	if err := h.CommitGuard(t.Context(), "c1"); !errors.Is(err, rollback.ErrGuardLost) {
		t.Errorf("a commit past the deadline: %v", err)
	}
	if err := h.Guard(t.Context(), rollback.Guard{CommandID: "c2"}); effect.ReasonOf(err) != effect.ReasonGuardPending {
		t.Errorf("a second change over a pending one: %v", err)
	}
	// What the timer runs is another process.
	other, _ := unguarded(t)
	if done, err := other.RollBackPending(t.Context(), false); err != nil || !done {
		t.Fatalf("at the deadline: %t, %v", done, err)
	}
	wantIn(t, hosttest.Shell(t, "ip addr show here"), "10.9.0.1/24")
	hosttest.Must(t, h.RollBackGuard(t.Context(), "c1"))
	if done, err := other.RollBackPending(t.Context(), true); err != nil || done {
		t.Errorf("again: %t, %v", done, err)
	}
	if len(*armed) != 1 || (*armed)[0] < rollback.Grace {
		t.Errorf("timers %v", *armed)
	}
}

// TestANetworkdThatIsAboutToComeIsRestarted: it may have read the files of the change, and is not on the bus yet.
func TestANetworkdThatIsAboutToComeIsRestarted(t *testing.T) {
	t.Parallel()
	if !withNetworkd(t) {
		return
	}
	h, _ := unguarded(t)
	hosttest.NewPeer(t)
	c := network.Config{Interfaces: []network.Interface{card("here", "192.0.2.7/24")}}
	saved, err := h.SaveNetwork(t.Context(), c)
	hosttest.Must(t, err)
	hosttest.Must(
		t,
		h.Guard(t.Context(), rollback.Guard{CommandID: "c1", Deadline: clock.Boottime() + time.Hour, Network: &saved}),
	)
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, c))
	stopNetworkd()
	restart, restarts := h.Kernel.Restart, 0
	h.Kernel.UnitState = func(context.Context, string) (string, error) { return "activating", nil }
	h.Kernel.Restart = func(context.Context, string) error { return errors.New("it hangs") }
	if err := h.RollBackGuard(t.Context(), "c1"); err == nil {
		t.Error("rolled back, though networkd may bring the change back")
	}
	wantIn(t, hosttest.Shell(t, "ip addr show here"), "10.9.0.1/24")
	h.Kernel.Restart = func(ctx context.Context, unit string) error {
		restarts++
		return restart(ctx, unit)
	}
	hosttest.Must(t, h.RollBackGuard(t.Context(), "c1"))
	if restarts != 1 {
		t.Errorf("%d restarts", restarts)
	}
	h.Kernel.UnitState = func(context.Context, string) (string, error) { return "", errors.New("no answer") }
	stopNetworkd()
	hosttest.Must(
		t,
		h.Guard(t.Context(), rollback.Guard{CommandID: "c2", Deadline: clock.Boottime() + time.Hour, Network: &saved}),
	)
	if err := h.RollBackGuard(t.Context(), "c2"); err == nil {
		t.Error("rolled back, though nobody knows whether networkd comes")
	}
}

func TestGuardGoesBackToNameAndFirewallToo(t *testing.T) {
	t.Parallel()
	if !withNetworkd(t) {
		return
	}
	h, _ := unguarded(t)
	before := firewall.Policy{Generation: 1, InputDefault: firewall.VerdictAccept, SMTPEgressAllowed: true}
	hosttest.Must(t, h.SetHostname(t.Context(), effect.Cause{}, "before"))
	hosttest.Must(t, h.ApplyFirewall(t.Context(), effect.Cause{}, before))
	hosttest.Must(
		t,
		h.Guard(
			t.Context(),
			rollback.Guard{CommandID: "c1", Deadline: clock.Boottime(), Hostname: "before", SetsFirewall: true,
				Firewall: &before},
		),
	)
	hosttest.Must(t, h.SetHostname(t.Context(), effect.Cause{}, "after"))
	hosttest.Must(
		t,
		h.ApplyFirewall(t.Context(), effect.Cause{}, firewall.Policy{Generation: 2, InputDefault: firewall.VerdictDrop}),
	)

	diff, err := h.FirewallDiff(t.Context(), before)
	hosttest.Must(t, err)
	wantIn(t, diff, "--- committed/nftables/inet ingot\n", "-input: policy accept\n", "+input: policy drop\n",
		"+output: smtp egress 25 [")

	other, _ := unguarded(t)
	if done, err := other.RollBackPending(t.Context(), false); err != nil || !done {
		t.Fatalf("at the deadline: %t, %v", done, err)
	}
	name, err := h.Hostname(t.Context())
	hosttest.Must(t, err)
	fw, err := h.Firewall(t.Context())
	hosttest.Must(t, err)
	if name != "before" || !fw.Holds(before) || hosttest.ReadFile(t, "/etc/hostname") != "before\n" {
		t.Errorf("host name %s, firewall %+v", name, fw)
	}
}

// TestTheKernelGoesBackThoughFilesCannotBeWritten: the rollback ends only when the files are back too, and keeps
// foreign additions to the interface.
func TestTheKernelGoesBackThoughFilesCannotBeWritten(t *testing.T) {
	t.Parallel()
	if !withNetworkd(t) {
		return
	}
	h, _ := unguarded(t)
	hosttest.NewPeer(t)
	hosttest.Must(
		t,
		h.ApplyNetwork(
			t.Context(),
			effect.Cause{},
			network.Config{Interfaces: []network.Interface{card("here", "10.9.0.1/24")}},
		),
	)
	want := hosttest.ReadFile(t, "/etc/systemd/network/05-ingot-here.network")
	next := network.Config{Interfaces: []network.Interface{card("here", "192.0.2.7/24")}}
	saved, err := h.SaveNetwork(t.Context(), next)
	hosttest.Must(t, err)
	hosttest.Must(t, h.Guard(t.Context(), rollback.Guard{CommandID: "c1", Deadline: clock.Boottime(), Network: &saved}))
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, next))
	hosttest.Shell(t, "ip addr add 203.0.113.9/32 dev here; mount -o remount,bind,ro /etc") // keepalived(8) does the first

	for range 2 {
		if _, err := h.RollBackPending(t.Context(), false); !errors.Is(err, unix.EROFS) {
			t.Fatalf("with a read-only /etc: %v", err)
		}
		wantIn(t, hosttest.Shell(t, "ip addr show here"), "10.9.0.1/24", "203.0.113.9/32")
		if strings.Contains(hosttest.Shell(t, "ip addr show here"), "192.0.2.7") {
			t.Error("the change is still there")
		}
	}
	if err := h.Guard(t.Context(), rollback.Guard{CommandID: "c2"}); effect.ReasonOf(err) != effect.ReasonGuardPending {
		t.Errorf("a second change over one that is not undone: %v", err)
	}
	hosttest.Shell(t, "mount -o remount,bind,rw /etc")
	if done, err := h.RollBackPending(t.Context(), false); err != nil || !done {
		t.Fatalf("when it can be written again: %t, %v", done, err)
	}
	if got := hosttest.ReadFile(t, "/etc/systemd/network/05-ingot-here.network"); got != want {
		t.Errorf("the file is now:\n%s", got)
	}
	wantIn(t, hosttest.Shell(t, "ip addr show here"), "10.9.0.1/24")
	if g, err := h.Guarded(t.Context()); err != nil || g.State != rollback.GuardRolledBack || g.Error != "" {
		t.Errorf("the guard: %+v, %v", g, err)
	}
}

// TestAPendingChangeIsKeptByCommand: what cannot be rolled back blocks no later change once an operator has decided.
func TestAPendingChangeIsKeptByCommand(t *testing.T) {
	t.Parallel()
	h := New(Config{Root: t.TempDir()})
	if g, err := h.AbandonGuard(t.Context()); g != nil || err != nil {
		t.Errorf("without a change: %+v, %v", g, err)
	}
	hosttest.Must(t, h.Guard(t.Context(), rollback.Guard{CommandID: "c1", Deadline: clock.Boottime() + time.Hour}))
	if g, err := h.AbandonGuard(t.Context()); err != nil || g == nil || g.CommandID != "c1" {
		t.Fatalf("a pending one: %+v, %v", g, err)
	}
	if done, err := h.RollBackPending(t.Context(), true); done || err != nil {
		t.Errorf("it was rolled back all the same: %t, %v", done, err)
	}
	if err := h.RollBackGuard(t.Context(), "c1"); !errors.Is(err, rollback.ErrGuardAbandoned) {
		t.Errorf("the agent's own rollback: %v", err)
	}
	if err := h.CommitGuard(t.Context(), "c1"); !errors.Is(err, rollback.ErrGuardLost) {
		t.Errorf("a proof that comes after it: %v", err)
	}
	hosttest.Must(t, h.Guard(t.Context(), rollback.Guard{CommandID: "c2", Deadline: clock.Boottime() + time.Hour}))

	hosttest.WriteFile(t, h.Path(rollback.GuardFile), `{"command_id": "c3", "sta`)
	if err := h.Guard(t.Context(), rollback.Guard{CommandID: "c4"}); err == nil {
		t.Error("a record that cannot be read was overwritten")
	}
	if g, err := h.AbandonGuard(t.Context()); err != nil || g == nil || g.Error == "" {
		t.Errorf("a record that cannot be read: %+v, %v", g, err)
	}
	hosttest.Must(t, h.Guard(t.Context(), rollback.Guard{CommandID: "c4", Deadline: clock.Boottime() + time.Hour}))
	wantIn(t, hosttest.ReadFile(t, h.Path(rollback.GuardFile)+".damaged"), "c3")
}

// After a reboot the kernel has forgotten the change; only files are put back, before networkd reads them.
func TestGuardGoesBackAtBoot(t *testing.T) {
	t.Parallel()
	if !withNetworkd(t) {
		return
	}
	h, _ := unguarded(t)
	hosttest.NewPeer(t)
	hosttest.Must(
		t,
		h.ApplyNetwork(
			t.Context(),
			effect.Cause{},
			network.Config{Interfaces: []network.Interface{card("here", "10.9.0.1/24")}},
		),
	)
	want := hosttest.ReadFile(t, "/etc/systemd/network/05-ingot-here.network")
	next := network.Config{Interfaces: []network.Interface{card("here", "192.0.2.7/24")}}
	saved, err := h.SaveNetwork(t.Context(), next)
	hosttest.Must(t, err)
	hosttest.Must(
		t,
		h.Guard(t.Context(), rollback.Guard{CommandID: "c1", Deadline: clock.Boottime() + time.Hour, Network: &saved}),
	)
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, next))
	stopNetworkd()
	if done, err := h.RollBackPending(t.Context(), false); err != nil || done {
		t.Fatalf("before the deadline, on the same boot: %t, %v", done, err)
	}
	var record rollback.Guard
	_, err = h.ReadJSON(rollback.GuardFile, &record)
	hosttest.Must(t, err)
	record.BootID, record.Network.BootID = "another", "another"
	hosttest.Must(t, h.WriteJSON(rollback.GuardFile, record))
	hosttest.Shell(t, "ip addr flush dev here")
	if done, err := h.RollBackPending(t.Context(), false); err != nil || !done {
		t.Fatalf("on another boot: %t, %v", done, err)
	}
	if got := hosttest.ReadFile(t, "/etc/systemd/network/05-ingot-here.network"); got != want {
		t.Errorf("the file is now:\n%s", got)
	}
	stopNetworkd = startNetworkd()
	testkit.Eventually(t, 10*time.Second,
		func() bool { return strings.Contains(hosttest.Shell(t, "ip addr show here"), "10.9.0.1/24") },
		"networkd does not bring the old address back")
}

// TestANetworkdThatStartsSlowlyIsWaitedFor: each try would end its start, and begin another one.
func TestANetworkdThatStartsSlowlyIsWaitedFor(t *testing.T) {
	t.Parallel()
	if !withNetworkd(t) {
		return
	}
	h, _ := unguarded(t)
	hosttest.NewPeer(t)
	tag := card("tag", "10.20.0.7/24")
	tag.VLAN = &network.VLAN{ID: 20, Parent: "here"}
	c := network.Config{Interfaces: []network.Interface{card("here", "192.0.2.7/24"), tag}}
	saved, err := h.SaveNetwork(t.Context(), c)
	hosttest.Must(t, err)
	restart, restarts := h.Kernel.Restart, 0
	h.Kernel.Restart = func(ctx context.Context, unit string) error {
		restarts++
		stopNetworkd()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(networkd.ReloadLimit + time.Second):
			return restart(ctx, unit)
		}
	}
	if err := h.RestoreNetwork(t.Context(), effect.Cause{}, saved); err != nil || restarts != 1 {
		t.Errorf("%v after %d starts", err, restarts)
	}
}
