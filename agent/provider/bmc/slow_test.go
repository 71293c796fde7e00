package bmc_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
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
	const patience = 2 * time.Second
	for _, named := range []bool{true, false} { // or the protocol is to be found
		opensSlowBMC(t, patience, named)
	}
}

func opensSlowBMC(t *testing.T, patience time.Duration, named bool) {
	t.Helper()
	r := startRedfish(t, newChassis(true))
	endpoint := r.Addr()
	if named {
		endpoint = r.Endpoint()
	}
	r.Misbehave(lab.Faults{Slow: patience * 9 / 40}) // 4.5 s of 20
	p := newProvider(t, newSafe(password), func(cfg *bmc.Config) { cfg.Timeout = patience })
	testkit.Eventually(t, time.Minute, func() bool {
		state, err := p.PowerState(t.Context(), target(endpoint))
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

// Whatever the status of a refused session: it works without one.
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

// A wrong password is recognized by any status, and is tried once.
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

// TestASecondTryOfAcceptedCredentials: a BMC that restarts answers 401 to credentials that it accepts. They are tried
// once more after a short pause, which a restart of the agent does not begin anew. Then they count as wrong.
func TestASecondTryOfAcceptedCredentials(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{true, false} { // the BMC takes the password again, or it has another one
		r := startRedfish(t, newChassis(true))
		r.Misbehave(lab.Faults{LockAfter: 3})
		clk := clock.NewFake(time.Now())
		memory := bmc.FileMemory(filepath.Join(t.TempDir(), "bmcs.json"))
		start := func() *bmc.Provider {
			return newProvider(t, newSafe(password), func(cfg *bmc.Config) { cfg.Clock, cfg.Memory = clk, memory })
		}
		ask := func(p *bmc.Provider) error {
			_, err := p.PowerState(t.Context(), target(r.Endpoint()))
			return err
		}
		p := start()
		if err := ask(p); err != nil {
			t.Fatal(err)
		}
		r.SetPassword("not yet")
		r.ForgetSessions()
		for range 3 {
			wantReason(t, "while it starts", ask(p), "BMC_UNREACHABLE", true)
		}
		p = start()
		wantReason(t, "after a restart of the agent", ask(p), "BMC_UNREACHABLE", true)
		if n := r.Counts(); n.WrongPasswords != 1 || n.Locked {
			t.Errorf("%d wrong passwords before the second try, locked: %v", n.WrongPasswords, n.Locked)
		}
		clk.Advance(31 * time.Second)
		if restarted {
			r.SetPassword(password)
			if err := ask(p); err != nil {
				t.Errorf("the second try: %v", err)
			}
			continue
		}
		for range 40 {
			wantReason(t, "another password", ask(p), "BMC_AUTH_FAILED", false)
			if clk.Advance(40 * time.Second); clk.Now().Minute()%7 == 0 {
				p = start()
			}
		}
		if n := r.Counts(); n.WrongPasswords != 2 || n.Locked {
			t.Errorf("%d wrong passwords, locked: %v", n.WrongPasswords, n.Locked)
		}
	}
}

// The BMC may count a log-in without an answer as wrong. It is tried three times in half an hour, and not until the
// account is locked.
func TestLogInsWithoutAnAnswerLockNobodyOut(t *testing.T) {
	t.Parallel()
	const lockAfter, patience = 5, time.Second
	for _, late := range []bool{true, false} { // the answer comes when the call has ended, or never
		r := startRedfish(t, newChassis(true))
		r.Misbehave(lab.Faults{LockAfter: lockAfter})
		over := make(chan struct{})
		server := relayTo(t, r, func(w http.ResponseWriter, req *http.Request, relay http.Handler) {
			if req.Method != http.MethodPost {
				relay.ServeHTTP(w, req)
				return
			}
			if late {
				r.Misbehave(lab.Faults{LockAfter: lockAfter, Slow: patience * 3 / 2})
				relay.ServeHTTP(w, req)
				r.Misbehave(lab.Faults{LockAfter: lockAfter})
				return
			}
			relay.ServeHTTP(httptest.NewRecorder(), req)
			select {
			case <-req.Context().Done():
			case <-over:
			}
		})
		t.Cleanup(func() { close(over) })
		clk := clock.NewFake(time.Now())
		p := newProvider(t, newSafe("wrong-one"), func(cfg *bmc.Config) { cfg.Clock, cfg.Timeout = clk, patience })
		for range 20 {
			if _, err := p.PowerState(t.Context(), target("redfish+"+server.URL)); err == nil {
				t.Error("logged in with a wrong password")
			}
			clk.Advance(time.Minute)
		}
		if n := r.Counts(); n.WrongPasswords == 0 || n.WrongPasswords > 3 || n.Locked {
			t.Errorf("late: %v: %d wrong passwords in 20 minutes, locked: %v", late, n.WrongPasswords, n.Locked)
		}
	}
}

// relayTo is a server before a lab BMC, which answers in its stead as it likes.
func relayTo(
	t *testing.T, r *lab.Redfish, answer func(http.ResponseWriter, *http.Request, http.Handler),
) *httptest.Server {
	t.Helper()
	to, err := url.Parse("https://" + r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	relay := httputil.NewSingleHostReverseProxy(to)
	pool := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the laboratory's
	relay.Transport = pool
	server := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { answer(w, req, relay) }),
	)
	t.Cleanup(func() {
		server.Close()
		pool.CloseIdleConnections()
	})
	return server
}

// Without sessions the first document is the log-in: where that is refused with 403, the password is wrong, and one try
// is enough.
func TestWrongPasswordWithoutSessions(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.TrimSuffix(r.URL.Path, "/") == "/redfish/v1":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"RedfishVersion": "1.6.0", "Systems": {"@odata.id": "/redfish/v1/Systems"},
				"Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}}}`)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			asked.Add(1)
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	p := newProvider(t, newSafe("wrong-one"), nil)
	for range 3 {
		_, err := p.PowerState(t.Context(), target("redfish+"+server.URL))
		wantReason(t, "403", err, "BMC_AUTH_FAILED", false)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the password was sent %d times", n)
	}
}

// A BMC that answers Retry-After gets that pause before any call, and at most a minute.
func TestBMCThatAsksForAPause(t *testing.T) {
	t.Parallel()
	var busy atomic.Bool
	var asked atomic.Int64
	r := startRedfish(t, newChassis(true))
	server := relayTo(t, r, func(w http.ResponseWriter, req *http.Request, relay http.Handler) {
		if busy.Load() {
			asked.Add(1)
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		relay.ServeHTTP(w, req)
	})
	clk := clock.NewFake(time.Now())
	p := newProvider(t, newSafe(password), func(cfg *bmc.Config) { cfg.Clock = clk })
	tg := target("redfish+" + server.URL)
	ask := func() error {
		_, err := p.PowerState(t.Context(), tg)
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	busy.Store(true)
	for range 3 {
		if e := failure.From(ask()); !e.Retryable || e.RetryAfter != time.Minute {
			t.Errorf("while it is busy: %v, again in %v", e, e.RetryAfter)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	busy.Store(false)
	clk.Advance(time.Minute)
	if err := ask(); err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

// The zone of an address goes into the connection, and into nothing that the BMC or its certificate would have to know.
func TestAddressWithAZone(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "[::1%lo]:0")
	if err != nil {
		t.Skipf("this machine's loopback has no IPv6: %v", err)
	}
	roots, cert := signedCertificate(t, "::1")
	r, err := lab.StartRedfish(t.Context(), lab.RedfishConfig{Chassis: c, Listener: l, User: user, Password: password,
		Certificate: &cert})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	_, port, err := net.SplitHostPort(r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	s := newSafe(password)
	p := newProvider(t, s, func(cfg *bmc.Config) { cfg.RootCAs = roots })
	for _, form := range []string{"redfish://[::1%25lo]:", "[::1%lo]:"} {
		_, err := p.PowerState(t.Context(), target(form+port))
		wantReason(t, "allowed for the address without its zone", err, "BMC_ENDPOINT_NOT_ALLOWED", false)
	}
	s.allow("::1%lo")
	for _, form := range []string{"redfish://[::1%25lo]:", "[::1%lo]:"} {
		if state, err := p.PowerState(t.Context(), target(form+port)); err != nil || state != provider.PowerOn {
			t.Errorf("%s: %v, %v", form, state, err)
		}
	}
	if _, err := p.PowerState(t.Context(), target("redfish://[::1%25nowhere0]:"+port)); !failure.HasReason(err,
		"BMC_ENDPOINT_NOT_ALLOWED") {
		t.Errorf("another zone: %v", err)
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
