package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

// bootHost is a host whose files are in a directory of their own. Its kernel's tables are those of the namespace.
func bootHost(t *testing.T) *Linux {
	t.Helper()
	root := t.TempDir()
	writeFile(t, filepath.Join(root, "proc/sys/kernel/random/boot_id"), "b-1\n")
	return New(Config{Root: root})
}

// reboot lets the kernel forget its tables, and loads as the unit does.
func reboot(t *testing.T, h *Linux) (FirewallLoad, error) {
	t.Helper()
	must(t, h.RemoveFirewall(t.Context(), Effect{}))
	return h.LoadFirewall(t.Context())
}

func wantLoaded(t *testing.T, when string, h *Linux, p FirewallPolicy) {
	t.Helper()
	got, err := reboot(t, h)
	if err != nil || !got.Loaded || !got.State.Holds(p) {
		t.Errorf("%s: %+v, %v; want generation %d", when, got, err, p.Generation)
	}
}

// change guards a policy over another one, and applies it.
func change(t *testing.T, h *Linux, id string, before *FirewallPolicy, next FirewallPolicy) {
	t.Helper()
	must(t, h.Guard(t.Context(), Guard{
		CommandID: id, Deadline: clock.Boottime() + time.Hour, SetsFirewall: true, Firewall: before, NextFirewall: &next,
	}))
	must(t, h.ApplyFirewall(t.Context(), Effect{CommandID: id}, next))
}

// TestABootLoadsWhatWasCommitted: at no moment of a change does a boot load anything but the last policy that was
// proven.
func TestABootLoadsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	if !inNetns(t) {
		return
	}
	h, ctx := bootHost(t), t.Context()
	first, second, third := policy(1), policy(2), policy(3)
	second.InputDefault, third.SMTPEgressAllowed = VerdictAccept, true

	if got, err := h.LoadFirewall(ctx); err != nil || got.Loaded || got.State.Present {
		t.Errorf("without any policy: %+v, %v", got, err)
	}
	change(t, h, "c-1", nil, first)
	if got, err := reboot(t, h); err != nil || got.State.Present {
		t.Errorf("the first policy, unproven: %+v, %v", got, err)
	}
	must(t, h.ApplyFirewall(ctx, Effect{}, first))
	must(t, h.CommitGuard(ctx, "c-1"))
	wantLoaded(t, "committed", h, first)

	change(t, h, "c-2", &first, second)
	if got, err := h.LoadFirewall(ctx); err != nil || got.Loaded || !got.State.Holds(second) {
		t.Errorf("a table that is there was replaced: %+v, %v", got, err)
	}
	wantLoaded(t, "the second, unproven", h, first)
	must(t, h.RollBackGuard(ctx, "c-2"))
	wantLoaded(t, "the second, rolled back", h, first)

	// The file cannot be written at the commit, and is what it was: the record of the change goes before it.
	file := filepath.Join(h.cfg.Root, bootFirewallFile)
	old, err := os.ReadFile(file)
	must(t, err)
	change(t, h, "c-3", &first, third)
	must(t, os.Remove(file))
	must(t, os.MkdirAll(filepath.Join(file, "in-the-way"), 0o755))
	must(t, h.CommitGuard(ctx, "c-3"))
	wantLoaded(t, "committed and not in the file", h, third)
	err = h.Guard(ctx, Guard{CommandID: "c-4", Deadline: clock.Boottime() + time.Hour})
	if err == nil {
		t.Error("the only record of a committed policy was replaced")
	}
	must(t, os.RemoveAll(file))
	must(t, os.WriteFile(file, old, 0o600))
	wantLoaded(t, "an older file", h, third)
	must(t, h.Guard(ctx, Guard{CommandID: "c-4", Deadline: clock.Boottime() + time.Hour, Hostname: "x"}))
	wantLoaded(t, "another change is pending", h, third)
}

// TestABootWithoutAReadablePolicyIsClosed: the machine is reached by nobody, and reaches its controller.
func TestABootWithoutAReadablePolicyIsClosed(t *testing.T) {
	t.Parallel()
	if !inNetns(t) {
		return
	}
	p := newPeer6(t)
	listen(t, 22)
	echoes(t, p.pid, "25,50052")
	open := FirewallPolicy{Generation: 1, InputDefault: VerdictAccept, SMTPEgressAllowed: true}
	for name, spoil := range map[string]func(text string) string{
		"half of it":      func(text string) string { return text[:len(text)/2] },
		"empty":           func(string) string { return "" },
		"edited":          func(text string) string { return strings.Replace(text, `"accept"`, `"drop"`, 1) },
		"nonsense inside": func(string) string { return bootFile(t, FirewallPolicy{Generation: 7, InputDefault: "perhaps"}) },
	} {
		h := bootHost(t)
		must(t, h.KeepFirewall(t.Context(), open))
		wantLoaded(t, name+", before", h, open)
		file := filepath.Join(h.cfg.Root, bootFirewallFile)
		must(t, os.WriteFile(file, []byte(spoil(read(t, file))), 0o600))
		for _, again := range []string{"", ", again"} { // as systemd does
			got, err := h.LoadFirewall(t.Context())
			if again == "" {
				got, err = reboot(t, h)
			}
			if !errors.Is(err, ErrFirewallFile) || !got.State.Closed() {
				t.Errorf("%s%s: %+v, %v", name, again, got, err)
			}
		}
		if p.reaches(22) || canDial("10.9.0.2:25") {
			t.Errorf("%s: not closed", name)
		}
		if !tried(true, func() bool { return canDial("10.9.0.2:50052") }) {
			t.Errorf("%s: the controller is not reached", name)
		}
		// The agent remembers.
		renewed := open
		renewed.Renew = true
		must(t, h.ApplyFirewall(t.Context(), Effect{}, renewed))
		must(t, h.KeepFirewall(t.Context(), open))
		wantLoaded(t, name+", afterwards", h, open)
	}
}

// bootFile gives a file that is whole.
func bootFile(t *testing.T, p FirewallPolicy) string {
	t.Helper()
	text := fmt.Sprintf(`{"generation":%d,"input_default":%q,"smtp_egress_allowed":false}`, p.Generation, p.InputDefault)
	return fmt.Sprintf(`{"sha256":%q,"policy":%s}`, hexSHA256([]byte(text)), text)
}

func TestWhichPolicyABootLoads(t *testing.T) {
	t.Parallel()
	file, before, next := policy(5), policy(4), policy(6)
	broken := errors.New("broken")
	guard := func(s GuardState) *Guard {
		return &Guard{State: s, SetsFirewall: true, Firewall: &before, NextFirewall: &next}
	}
	for name, c := range map[string]struct {
		file           *FirewallPolicy
		fileErr        error
		guard          *Guard
		guardErr       error
		want           *FirewallPolicy
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
		if got != c.want || errors.Is(err, ErrFirewallFile) != c.wantBrokenFile {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestATableOfAnOlderVersionIsMadeAnew: an upgraded agent has other rules for the same policy, and that is no drift.
func TestATableOfAnOlderVersionIsMadeAnew(t *testing.T) {
	t.Parallel()
	if !inNetns(t) {
		return
	}
	h, p := New(Config{}), policy(1)
	older := p.chains()[:2] // which had no chain for what is forwarded
	must(t, replaceTable(fmt.Sprintf("ingot generation=1 digest=%s", digestChains(older, nil)), older))
	now, err := h.Firewall(context.WithoutCancel(t.Context()))
	must(t, err)
	if !now.Outdated(p) || now.Drifted() || now.Outdated(policy(2)) {
		t.Errorf("outdated %t, drifted %t: %+v", now.Outdated(p), now.Drifted(), now)
	}
	if err := h.ApplyFirewall(t.Context(), Effect{}, p); ReasonOf(err) != ReasonGenerationReused {
		t.Errorf("an order of the same generation: %v", err)
	}
	p.Renew = true
	if s := mustApply(t, h, p); !s.Holds(p) || s.Outdated(p) {
		t.Errorf("made anew: %+v", s)
	}
}

// TestOneChangedTableMayBeReplaced: an accepted drift is that of one digest.
func TestOneChangedTableMayBeReplaced(t *testing.T) {
	t.Parallel()
	if !inNetns(t) {
		return
	}
	h, next := New(Config{}), policy(2)
	mustApply(t, h, policy(1))
	sh(t, "nft add rule inet ingot input tcp dport 4711 accept")
	seen, err := h.Firewall(t.Context())
	must(t, err)
	next.OverwriteDigest = seen.Digest
	sh(t, "nft add rule inet ingot input tcp dport 4712 accept")
	if err := h.ApplyFirewall(t.Context(), Effect{}, next); !errors.Is(err, ErrDrift) {
		t.Errorf("another change: %v", err)
	}
	now, err := h.Firewall(t.Context())
	must(t, err)
	next.OverwriteDigest = now.Digest
	if s := mustApply(t, h, next); !s.Holds(next) {
		t.Errorf("holds %+v", s)
	}
}
