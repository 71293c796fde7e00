package bmc_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

// A BMC that needs so long for each answer that a log-in takes longer than an exchange may: the time that it gets is
// that which it has shown to need, and no try leaves a session behind.
func TestSlowBMCIsOpenedAndKeepsNoSessions(t *testing.T) {
	t.Parallel()
	r := startRedfish(t, newChassis(true))
	const patience = 2 * time.Second
	r.Misbehave(lab.Faults{Slow: patience * 9 / 40}) // 4.5 s of 20
	p := newProvider(t, newSafe(password), func(cfg *bmc.Config) { cfg.Timeout = patience })
	testkit.Eventually(t, time.Minute, func() bool {
		state, err := p.PowerState(t.Context(), target(r.Endpoint()))
		return err == nil && state == provider.PowerOn
	}, "it is never opened")
	if n := r.Counts(); n.Open != 1 {
		t.Errorf("%d of %d sessions are open", n.Open, n.Sessions)
	}
	r.Misbehave(lab.Faults{})
	p.Close(t.Context())
	if n := r.Counts(); n.Open != 0 {
		t.Errorf("%d of %d sessions are open", n.Open, n.Sessions)
	}
}

// Whatever status says that there is no session left: it works without one.
func TestNoSessionIsLeft(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusTooManyRequests} {
		r := startRedfish(t, newChassis(true))
		r.Misbehave(lab.Faults{NoSessions: true, SessionLimit: status})
		p := newProvider(t, newSafe(password), nil)
		if state, err := p.PowerState(t.Context(), target(r.Endpoint())); err != nil || state != provider.PowerOn {
			t.Errorf("%d: %v, %v", status, state, err)
		}
	}
}

// A wrong password is one, and is tried once, whatever status says so.
func TestWrongPasswordByAnyStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusForbidden} {
		r := startRedfish(t, newChassis(true))
		r.Misbehave(lab.Faults{WrongPassword: status, LockAfter: 2})
		p := newProvider(t, newSafe("wrong-one"), nil)
		for range 4 {
			_, err := p.PowerState(t.Context(), target(r.Endpoint()))
			wantReason(t, http.StatusText(status), err, "BMC_AUTH_FAILED", false)
		}
		if n := r.Counts(); n.WrongPasswords != 1 || n.Locked {
			t.Errorf("%d: %d wrong passwords, locked: %v", status, n.WrongPasswords, n.Locked)
		}
	}
}

// A 401 may be that of a BMC that is just starting: after half an hour it is tried once more, then seldom. A password
// that was called wrong in another way waits for a new one.
func TestOnlyA401IsTriedAgainByTime(t *testing.T) {
	t.Parallel()
	for status, again := range map[int]bool{http.StatusUnauthorized: true, http.StatusBadRequest: false} {
		r := startRedfish(t, newChassis(true))
		r.SetPassword("not yet")
		r.Misbehave(lab.Faults{WrongPassword: status})
		clk := clock.NewFake(time.Now())
		p := newProvider(t, newSafe(password), func(cfg *bmc.Config) { cfg.Clock = clk })
		ask := func() error {
			_, err := p.PowerState(t.Context(), target(r.Endpoint()))
			return err
		}
		tries := func(want int) {
			t.Helper()
			for range 3 {
				wantReason(t, "power state", ask(), "BMC_AUTH_FAILED", false)
			}
			if !again {
				want = 1
			}
			if n := r.Counts().WrongPasswords; n != want {
				t.Errorf("%d: %d wrong passwords, want %d", status, n, want)
			}
		}
		tries(1)
		clk.Advance(31 * time.Minute)
		tries(2)
		clk.Advance(31 * time.Minute)
		tries(2) // the second time it takes an hour
		clk.Advance(31 * time.Minute)
		r.SetPassword(password)
		if err := ask(); (err == nil) != again || err != nil && !failure.HasReason(err, "BMC_AUTH_FAILED") {
			t.Errorf("%d: with the right password at last: %v", status, err)
		}
	}
}

func TestOldTLSIsNamed(t *testing.T) {
	t.Parallel()
	r, err := lab.StartRedfish(t.Context(), lab.RedfishConfig{
		Chassis: newChassis(true), Listen: "127.0.0.1:0", User: user, Password: password, OldTLS: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	for _, endpoint := range []string{r.Endpoint(), r.Addr()} {
		_, err := newProvider(t, newSafe(password), nil).PowerState(t.Context(), target(endpoint))
		if e := wantReason(t, endpoint, err, "BMC_UNREACHABLE", true); !strings.Contains(e.Error(), "has no TLS 1.2") {
			t.Errorf("%s: %v", endpoint, e)
		}
	}
}
