package bmc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, s)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.text)
}

// Through ipmi_sim, over a power cycle that goes on at the same time.
func TestConsoleIsCaptured(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	s := startIPMI(t, c)
	p := newProvider(t, newSafe(password), nil)
	var got lines
	ctx, cancel := context.WithCancel(t.Context())
	group, _ := task.New(ctx)
	group.Go("console", func(ctx context.Context) error { return p.Console(ctx, target(s.Endpoint()), got.add) })
	// Output before a session is attached is lost, so it is repeated until it is received.
	testkit.Eventually(t, 20*time.Second, func() bool {
		c.Print("are you there?\r\n")
		return len(got.all()) > 0
	}, "nothing was captured")
	if err := p.Reboot(ctx, target(s.Endpoint()), cause("c-1"), boot.RebootForced); err != nil {
		t.Error(err)
	}
	for i := range 50 {
		c.Print(fmt.Sprintf("line %d of the boot\r\n", i))
	}
	c.Print("\x1b[2J\x1b[1;1Hingot1.dG9wc2VjcmV0 and ingot.token=Zm9vYmFyYmF6 \x1b[0;31mred\x1b[0m\r\nthe end\r\n")
	testkit.Eventually(t, 20*time.Second, func() bool { return slices.Contains(got.all(), "the end") },
		"the end was not captured: %q", got.all())
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	text := strings.Join(got.all(), "\n")
	for i := range 50 {
		if want := fmt.Sprintf("line %d of the boot", i); strings.Count(text, want+"\n") != 1 {
			t.Errorf("%q was captured %d times", want, strings.Count(text, want+"\n"))
		}
	}
	if !strings.Contains(text, "[redacted] and ingot.token=[redacted] red\n") || strings.Contains(text, "dG9wc2VjcmV0") {
		t.Errorf("captured %q", text)
	}
	// The console is free again.
	again, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var second lines
	other, _ := task.New(again)
	other.Go("console", func(ctx context.Context) error { return p.Console(ctx, target(s.Endpoint()), second.add) })
	testkit.Eventually(t, 10*time.Second, func() bool { c.Print("again\n"); return len(second.all()) > 0 },
		"the console was not let go")
	cancel()
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
}

// An account that Redfish takes and IPMI does not: the console is tried once, and the machine can still be switched.
func TestConsoleParksOnlyItself(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	r := startRedfish(t, c)
	sim := startIPMIAt(t, c, r.Addr())
	r.SetPassword("another")
	p := newProvider(t, newSafe("another"), nil)
	tg := target(sim.Addr())
	if _, err := p.PowerState(t.Context(), tg); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		err := p.Console(t.Context(), tg, func(string) {})
		wantReason(t, "console", err, "BMC_AUTH_FAILED", false)
	}
	if err := p.SetPower(t.Context(), tg, cause("c"), provider.PowerOff); err != nil {
		t.Errorf("off: %v", err)
	}
}

func TestConsoleOfRedfishIsRefused(t *testing.T) {
	t.Parallel()
	r := startRedfish(t, newChassis(true))
	p := newProvider(t, newSafe(password), nil)
	if err := p.Console(t.Context(), target(r.Endpoint()), func(string) {}); !errors.Is(err, effect.ErrUnsupported) {
		t.Errorf("console over Redfish: %v", err)
	}
}

func TestScrubber(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, in string
		want     []string
	}{
		{"plain", "one\r\ntwo\n\nthree", []string{"one", "two", "three"}},
		{"escapes", "\x1b[31mred\x1b[0m \x1b(Btext\x07\n", []string{"red text"}},
		{"a screen is lines", "\x1b[1;1Htop\x1b[2;1Hbottom\n", []string{"top", "bottom"}},
		{"bytes that are no text", "a\xff\xfeb\n", []string{"a?b"}},
		{"bootstrap token", "bundle ingot1.abc-DEF_ghi= given\n", []string{"bundle [redacted] given"}},
		{"bearer", "authorization: Bearer abc.def\n", []string{"authorization: [redacted] [redacted]"}},
		{"kernel command line", "linux ingot.token=QWxhZGRpbg ingot.site=10.0.0.1\n",
			[]string{"linux ingot.token=[redacted] ingot.site=10.0.0.1"}},
		{"boot URL", "http://10.0.0.1/boot/0123456789abcdef0123/kernel... ok\n",
			[]string{"http://10.0.0.1/boot/[redacted]/kernel... ok"}},
		{"password", "BMC password: hunter2\nPASSWD=hunter2\n", []string{"BMC password: [redacted]", "PASSWD=[redacted]"}},
		{
			"key over lines",
			"before\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIB\nAoGCCqGSM\n-----END EC PRIVATE KEY-----\nafter\n",
			[]string{"before", "[redacted]", "after"},
		},
		{"key in one line", "x -----BEGIN PRIVATE KEY-----MHc-----END PRIVATE KEY----- y\n", []string{"x [redacted] y"}},
		{"key without end", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\ndef\n", []string{"[redacted]"}},
		{"two keys", "-----BEGIN PRIVATE KEY-----\na\n-----END PRIVATE KEY----- -----BEGIN PRIVATE KEY-----\nb\n-----END " +
			"PRIVATE KEY-----z\n", []string{"[redacted]", " [redacted]", "z"}},
		{"a line without end", strings.Repeat("x", 5000), []string{strings.Repeat("x", 4096), strings.Repeat("x", 904)}},
	} {
		for _, size := range []int{1, 7, 1 << 20} { // however it is cut
			var got lines
			s := bmc.NewRedactor(got.add)
			for rest := []byte(tc.in); len(rest) > 0; {
				n := min(size, len(rest))
				if written, err := s.Write(rest[:n]); err != nil || written != n {
					t.Fatalf("%s: wrote %d, %v", tc.name, written, err)
				}
				rest = rest[n:]
			}
			s.Flush()
			if !slices.Equal(got.all(), tc.want) {
				t.Errorf("%s, by %d: %q, want %q", tc.name, size, got.all(), tc.want)
			}
		}
	}
}
