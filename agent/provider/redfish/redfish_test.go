package redfish_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/redfish"
)

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

func TestShapes(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]struct {
		macs    []string
		boot    provider.BootDevice // at first
		http    error               // of booting from HTTP
		light   error
		patches []string
		sensors []provider.Sensor
		events  []string
		missing string // of the log
	}{
		"dell-like.json": {
			patches: []string{
				`System.Embedded.1 {"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"Pxe"}}`,
				`System.Embedded.1 {"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"UefiHttp"}}`,
				`System.Embedded.1 {"Boot":{"BootSourceOverrideEnabled":"Disabled"}}`,
				`System.Embedded.1 {"IndicatorLED":"Off"}`,
			},
			sensors: []provider.Sensor{
				{Name: "System Board Inlet Temp", Kind: "temperature", Value: 23, Unit: "Cel", Health: "ok"},
				{Name: "System Board Fan1A", Kind: "fan", Value: 6840, Unit: "RPM", Health: "ok"},
				{Name: "PS1 Voltage 1", Kind: "voltage", Value: 230, Unit: "V", Health: "warning"},
				{Name: "System Power Control", Kind: "power", Value: 212, Unit: "W"},
			},
			events: []string{"2 critical The chassis is open.", "1 ok Log cleared."},
		},
		"lenovo-like.json": {
			macs: []string{"02:00:00:00:00:0a"}, boot: provider.BootDisk, http: effect.ErrUnsupported,
			light: effect.ErrUnsupported,
			patches: []string{
				`2 {"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"Pxe"}}`,
				`2 {"Boot":{"BootSourceOverrideEnabled":"Disabled"}}`,
			},
			sensors: []provider.Sensor{
				{Name: "Ambient Temp", Kind: "temperature", Value: 23, Unit: "Cel", Health: "ok"},
				{Name: "Fan 1 Tach", Kind: "fan", Value: 6840, Unit: "RPM"},
				provider.NotRead("Chassis/1/Power", "document", "the BMC refuses: 404"),
			},
			events: []string{"2 warning Fan speed is low.", "1 ok System boot completed."},
		},
		"dmtf-like.json": {
			boot: provider.BootPXE, http: effect.ErrUnsupported,
			patches: []string{
				`437XR1138R2 {"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"Pxe"}}`,
				`437XR1138R2 {"Boot":{"BootSourceOverrideEnabled":"Disabled"}}`,
				`437XR1138R2 {"LocationIndicatorActive":false}`,
			},
			sensors: []provider.Sensor{
				{Name: "Ambient Temperature", Kind: "temperature", Value: 22.5, Unit: "Cel", Health: "ok"},
				{Name: "CPU #1 Fan Speed", Kind: "percent", Value: 80, Unit: "%"},
				provider.NotRead("Chassis/1U/Sensors/Gone", "document", "the BMC refuses: 404"),
			},
			missing: "Managers/BMC",
			events:  []string{"2 ok Temperature is fine again", "1 critical Temperature threshold exceeded"},
		},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			s := loadShape(t, file)
			c := s.open(t, want.macs...)
			switches(t, c)
			bootDevices(t, c, want.boot, want.http)
			if err := c.Identify(t.Context(), false); !errors.Is(err, want.light) {
				t.Errorf("identify: %v", err)
			}
			posts, patches := s.asked()
			if !slices.Equal(posts, []string{"GracefulShutdown", "On", "ForceOff", "On"}) {
				t.Errorf("resets %q", posts)
			}
			if !slices.Equal(patches, want.patches) {
				t.Errorf("patches\n%s\nwant\n%s", strings.Join(patches, "\n"), strings.Join(want.patches, "\n"))
			}
			sensors, err := c.Sensors(t.Context())
			if err != nil || !slices.Equal(sensors, want.sensors) {
				t.Errorf("sensors %+v, %v", sensors, err)
			}
			complete := func(err error) bool {
				if want.missing == "" {
					return err == nil
				}
				return err != nil && err.Error() == "not read: "+want.missing+": the BMC refuses: 404"
			}
			log, err := c.EventLog(t.Context(), 10)
			var events []string
			for _, e := range log {
				events = append(events, e.ID+" "+e.Severity+" "+e.Message)
			}
			if !complete(err) || !slices.Equal(events, want.events) {
				t.Errorf("events %q, %v", events, err)
			}
			if log, err = c.EventLog(t.Context(), 1); !complete(err) || len(log) != 1 || log[0].At.IsZero() {
				t.Errorf("the newest event: %+v, %v", log, err)
			}
		})
	}
}

func switches(t *testing.T, c *redfish.Client) {
	t.Helper()
	is := func(want provider.PowerState) {
		t.Helper()
		if got, err := c.PowerState(t.Context()); err != nil || got != want {
			t.Errorf("power reads %q, %v; want %q", got, err, want)
		}
	}
	is(provider.PowerOn)
	for _, step := range []struct {
		sw   provider.Switch
		want provider.PowerState
	}{
		{provider.SwitchSoftOff, provider.PowerOff}, {provider.SwitchOn, provider.PowerOn},
		{provider.SwitchOff, provider.PowerOff}, {provider.SwitchOn, provider.PowerOn},
	} {
		if err := c.Switch(t.Context(), step.sw); err != nil {
			t.Errorf("switch %s: %v", step.sw, err)
		}
		is(step.want)
	}
}

func bootDevices(t *testing.T, c *redfish.Client, first provider.BootDevice, httpBoot error) {
	t.Helper()
	is := func(want provider.BootDevice) {
		t.Helper()
		if got, err := c.BootOnce(t.Context()); err != nil || !got.Once(want) {
			t.Errorf("boot device reads %q, %v; want %q", got.Device, err, want)
		}
	}
	is(first)
	for _, step := range []struct {
		device provider.BootDevice
		err    error
	}{{provider.BootPXE, nil}, {provider.BootHTTP, httpBoot}, {provider.BootDefault, nil}, {provider.BootDefault, nil},
		{"floppy", effect.ErrInvalid}} {
		_, err := c.SetBootOnce(t.Context(), step.device)
		if !errors.Is(err, step.err) {
			t.Errorf("boot from %q: %v", step.device, err)
		}
		if err == nil {
			is(step.device)
		}
	}
}

// A chassis with several systems: only the MAC addresses identify ours, and a guess could hit a foreign one.
func TestWhichSystem(t *testing.T) {
	t.Parallel()
	s := loadShape(t, "lenovo-like.json")
	_, err := redfish.Open(t.Context(), redfish.Config{URL: s.server.URL, Username: "u", Password: "p",
		MACs: []string{"02:00:00:00:00:ff"}})
	if !errors.Is(err, effect.ErrInvalid) || effect.ReasonOf(err) != redfish.ReasonWhichSystem {
		t.Errorf("a machine that isn't there: %v", err)
	}
	if state, err := s.open(t, "02:00:00:00:00:01").PowerState(t.Context()); err != nil || state != provider.PowerOff {
		t.Errorf("the other machine: %v, %v", state, err)
	}
}

// Answers that no service should give, and their results.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	root := map[string]any{"@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot",
		"Systems": map[string]any{"@odata.id": "/redfish/v1/Systems"}}
	elsewhere := 0
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	t.Cleanup(trap.Close)
	for name, tc := range map[string]struct {
		docs map[string]map[string]any
		want error
	}{
		"no root": {map[string]map[string]any{}, provider.ErrProtocol},
		"another root": {map[string]map[string]any{"/redfish/v1": {"hello": "world"}},
			provider.ErrProtocol},
		"root without more": {map[string]map[string]any{"/redfish/v1": {"RedfishVersion": "1.0"}},
			provider.ErrProtocol},
		"nothing that the root links to": {map[string]map[string]any{"/redfish/v1": root}, provider.ErrRefused},
		"no systems": {map[string]map[string]any{"/redfish/v1": root,
			"/redfish/v1/Systems": {"Members": []any{}}}, provider.ErrRefused},
		"systems elsewhere": {
			map[string]map[string]any{"/redfish/v1": root,
				"/redfish/v1/Systems": {"Members": []any{map[string]any{"@odata.id": trap.URL + "/x"}}}},
			provider.ErrRefused,
		},
		"a path that becomes a host": {
			map[string]map[string]any{"/redfish/v1": root, "/redfish/v1/Systems": {"Members": []any{
				map[string]any{"@odata.id": "@" + strings.TrimPrefix(trap.URL, "http://") + "/x"},
				map[string]any{"@odata.id": "//" + strings.TrimPrefix(trap.URL, "http://") + "/x"},
			}}},
			provider.ErrRefused,
		},
	} {
		s := serveShape(t, tc.docs)
		_, err := redfish.Open(t.Context(), redfish.Config{URL: s.server.URL, Username: "u", Password: "p",
			Timeout: 2 * time.Second})
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if elsewhere > 0 {
		t.Errorf("%d requests went elsewhere", elsewhere)
	}
}

// Of several systems that can be switched, the UUID or the serial number identifies the machine, where no MAC address
// does. A guess is never made.
func TestWhichSystemByItsMarks(t *testing.T) {
	t.Parallel()
	system := func(id, uuid, serial, power string) map[string]any {
		path := "/redfish/v1/Systems/" + id
		return map[string]any{
			"@odata.id": path, "Id": id, "UUID": uuid, "SerialNumber": serial, "PowerState": power,
			"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{"target": path + "/Actions/ComputerSystem.Reset"}},
		}
	}
	s := serveShape(t, map[string]map[string]any{
		"/redfish/v1": {
			"@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "RedfishVersion": "1.15.0",
			"Systems": map[string]any{"@odata.id": "/redfish/v1/Systems"},
			"Links":   map[string]any{"Sessions": map[string]any{"@odata.id": "/redfish/v1/SessionService/Sessions"}},
		},
		"/redfish/v1/Systems": {"Members": []any{
			map[string]any{"@odata.id": "/redfish/v1/Systems/A"}, map[string]any{"@odata.id": "/redfish/v1/Systems/B"},
		}},
		"/redfish/v1/Systems/A": system("A", "4C4C4544-0035", "SN-A", "On"),
		"/redfish/v1/Systems/B": system("B", "4C4C4544-0036", "SN-B", "Off"),
	})
	for name, tc := range map[string]struct {
		uuid, serial, system string
		want                 provider.PowerState
	}{
		"UUID":                      {uuid: "4c4c4544-0036", want: provider.PowerOff},
		"serial number":             {serial: "SN-A", want: provider.PowerOn},
		"UUID before serial number": {uuid: "4c4c4544-0035", serial: "SN-B", want: provider.PowerOn},
		"named":                     {uuid: "4c4c4544-0035", system: "/redfish/v1/Systems/B", want: provider.PowerOff},
		"neither":                   {},
		"of another machine":        {uuid: "4c4c4544-9999", serial: "SN-Z"},
	} {
		c, err := redfish.Open(t.Context(), redfish.Config{
			URL: s.server.URL, Username: "u", Password: "p", UUID: tc.uuid, Serial: tc.serial, System: tc.system,
		})
		if tc.want == "" {
			if effect.ReasonOf(err) != redfish.ReasonWhichSystem {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if state, err := c.PowerState(t.Context()); err != nil || state != tc.want {
			t.Errorf("%s: %v, %v; want %v", name, state, err, tc.want)
		}
		_ = c.Close(t.Context())
	}
}

// A log service may have no entries, while another one has them.
// Source: github.com/NVIDIA/libredfish, tests/mockups/lenovo, Systems/1/LogServices/SEL: a recording of an XCC 2.83.
func TestLogWithoutEntries(t *testing.T) {
	t.Parallel()
	const logs = "/redfish/v1/Managers/Controller.Embedded.1/LogServices/"
	s := loadShape(t, "dell-like.json")
	s.docs[logs+"Lclog"] = map[string]any{"@odata.id": logs + "Lclog", "Entries": s.docs[logs+"Sel"]["Entries"]}
	delete(s.docs[logs+"Sel"], "Entries")
	c := s.open(t)
	if events, err := c.EventLog(t.Context(), 5); err != nil || len(events) != 2 {
		t.Errorf("%+v, %v", events, err)
	}
	delete(s.docs[logs+"Lclog"], "Entries")
	if _, err := c.EventLog(t.Context(), 5); !errors.Is(err, effect.ErrUnsupported) {
		t.Errorf("no log has entries: %v", err)
	}
}

// A document may have moved within the service. An order is sent again only where its own path wants a slash at the
// end, and no other host is asked.
func TestRedirectsWithinTheService(t *testing.T) {
	t.Parallel()
	for status, slash := range map[int]bool{
		http.StatusMovedPermanently: true, http.StatusTemporaryRedirect: true, http.StatusPermanentRedirect: false,
	} {
		s := loadShape(t, "dell-like.json")
		moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/") || strings.HasSuffix(r.URL.Path, "/moved"):
				r.URL.Path = strings.TrimSuffix(r.URL.Path, "/moved")
				s.ServeHTTP(w, r)
			case slash:
				http.Redirect(w, r, r.URL.Path+"/", status)
			case strings.HasSuffix(r.URL.Path, "/Sessions"):
				s.ServeHTTP(w, r)
			default:
				http.Redirect(w, r, r.URL.Path+"/moved", status)
			}
		}))
		t.Cleanup(moved.Close)
		c, err := redfish.Open(t.Context(), redfish.Config{URL: moved.URL, Username: "u", Password: "p"})
		if err != nil {
			t.Fatalf("%d: %v", status, err)
		}
		defer c.Close(t.Context())
		if state, err := c.PowerState(t.Context()); err != nil || state != provider.PowerOn {
			t.Errorf("%d: power: %v, %v", status, state, err)
		}
		err = c.Switch(t.Context(), provider.SwitchOff)
		posts, _ := s.asked()
		if slash && (err != nil || !slices.Equal(posts, []string{"ForceOff"})) {
			t.Errorf("%d: an order whose path wants a slash: %v, resets %q", status, err, posts)
		}
		if !slash && (!errors.Is(err, provider.ErrRefused) || len(posts) != 0) {
			t.Errorf("%d: an order that was sent elsewhere: %v, resets %q", status, err, posts)
		}
	}
}

// A service that is busy is asked again when it wants to be, and its pause is bounded.
func TestPauseThatAServiceAsksFor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		again bool
		after time.Duration
	}{
		"1": {true, 0}, "30": {false, 30 * time.Second}, "86400": {false, time.Minute}, "soon": {false, 0}, "-1": {false, 0},
		time.Now().Add(time.Hour).UTC().Format(http.TimeFormat):  {false, time.Minute},
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): {false, 0},
	} {
		s := loadShape(t, "dell-like.json")
		var busy atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if busy.Add(-1) >= 0 {
				w.Header().Set("Retry-After", text)
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			s.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		c, err := redfish.Open(t.Context(), redfish.Config{URL: server.URL, Username: "u", Password: "p"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		busy.Store(1)
		began := time.Now()
		_, err = c.PowerState(t.Context())
		var asked interface{ RetryAfter() time.Duration }
		switch {
		case want.again:
			if err != nil || time.Since(began) < time.Second {
				t.Errorf("%q: %v after %v", text, err, time.Since(began))
			}
		case !errors.Is(err, provider.ErrRefused) || !errors.As(err, &asked) || asked.RetryAfter() != want.after:
			t.Errorf("%q: %v, want a pause of %v", text, err, want.after)
		}
	}
}

// Whatever happens at a log-in, the session that it has opened is ended. Its caller may have gone before the answer, or
// the answer may name it in the body alone. A request may be refused although the session was not over.
func TestNoSessionIsLeftBehind(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		location, impatient bool
		refuse              int64 // requests after the log-in that are refused with 401
	}{
		"the caller has gone":        {location: true, impatient: true},
		"named in the body":          {},
		"refused without being over": {location: true, refuse: 1},
	} {
		s := loadShape(t, "dell-like.json")
		var opened, ended atomic.Int64
		var refuse atomic.Int64
		refuse.Store(tc.refuse)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/Sessions"):
				id := fmt.Sprintf("%s/%d", r.URL.Path, opened.Add(1))
				if tc.impatient {
					cancel()
					select {
					case <-r.Context().Done(): // the answer is awaited no more
					case <-time.After(100 * time.Millisecond):
					}
				}
				w.Header().Set("X-Auth-Token", token)
				if tc.location {
					w.Header().Set("Location", id)
				}
				w.WriteHeader(http.StatusCreated)
				fmt.Fprintf(w, `{"@odata.id": %q}`, id)
			case r.Method == http.MethodDelete:
				ended.Add(1)
				w.WriteHeader(http.StatusNoContent)
			case strings.HasSuffix(r.URL.Path, "/Systems") && refuse.Add(-1) >= 0:
				w.WriteHeader(http.StatusUnauthorized)
			default:
				s.ServeHTTP(w, r)
			}
		}))
		t.Cleanup(server.Close)
		c, err := redfish.Open(ctx, redfish.Config{URL: server.URL, Username: "u", Password: "p"})
		if (err != nil) != tc.impatient {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = c.Close(t.Context())
		}
		if opened.Load() == 0 || opened.Load() != ended.Load() {
			t.Errorf("%s: %d sessions were opened, %d ended", name, opened.Load(), ended.Load())
		}
	}
}

// Each answer of the wire, and what it means.
func TestMeaningOfAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"401 everywhere": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
			provider.ErrCredentials},
		"404": {http.NotFound, provider.ErrProtocol},
		"redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) },
			provider.ErrProtocol},
		"500": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
			provider.ErrRefused},
		"a login page": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
			provider.ErrProtocol},
		"cut off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, provider.ErrSilent},
		"no end": {func(w http.ResponseWriter, _ *http.Request) {
			spaces := make([]byte, 1<<20)
			for i := range spaces {
				spaces[i] = ' '
			}
			for range 64 {
				if _, err := w.Write(spaces); err != nil {
					return
				}
			}
		}, provider.ErrProtocol},
	} {
		server := httptest.NewServer(tc.answer)
		t.Cleanup(server.Close)
		cfg := redfish.Config{URL: server.URL, Username: "u", Password: "p", Timeout: 2 * time.Second}
		if _, err := redfish.Open(t.Context(), cfg); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := redfish.Open(t.Context(), redfish.Config{URL: "https://x/path"}); err == nil {
		t.Error("a URL with a path is taken")
	}
}

// A service may want the mode with every change of the override: it is set, and taken back.
func TestAModeThatIsNeeded(t *testing.T) {
	t.Parallel()
	s := loadShape(t, "dell-like.json")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.Method == http.MethodPatch && !bytes.Contains(body, []byte("BootSourceOverrideMode")) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c, err := redfish.Open(t.Context(), redfish.Config{URL: server.URL, Username: "u", Password: "p"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for _, d := range []provider.BootDevice{provider.BootPXE, provider.BootDefault} {
		if _, err := c.SetBootOnce(t.Context(), d); err != nil {
			t.Errorf("boot from %q: %v", d, err)
		}
		if got, err := c.BootOnce(t.Context()); err != nil || !got.Once(d) {
			t.Errorf("boot device reads %+v, %v; want %q", got, err, d)
		}
	}
}

// A service whose TLS exchanges keys by RSA alone is named as such, and gets no password.
func TestTLSWithRSAAlone(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MaxVersion: tls.VersionTLS12, //nolint:gosec // it is what it is about
		CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_CBC_SHA}}
	server.StartTLS()
	t.Cleanup(server.Close)
	cfg := redfish.Config{URL: server.URL, Username: "u", Password: "p", TLS: &tls.Config{MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true}} //nolint:gosec // a test's certificate
	for name, err := range map[string]error{"probe": redfish.Probe(t.Context(), cfg), "open": func() error {
		_, err := redfish.Open(t.Context(), cfg)
		return err
	}()} {
		if !errors.Is(err, provider.ErrRSAOnly) || !errors.Is(err, provider.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if asked > 0 {
		t.Errorf("%d requests were sent", asked)
	}
}

// One member that always answers 401 is not a wrong password: other documents are read with the same log-in.
func TestAMemberThatIsForbidden(t *testing.T) {
	t.Parallel()
	s := loadShape(t, "dell-like.json")
	logins := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/Thermal") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/Sessions") {
			logins++
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c, err := redfish.Open(t.Context(), redfish.Config{URL: server.URL, Username: "u", Password: "p"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	sensors, err := c.Sensors(t.Context())
	if err != nil || len(sensors) < 2 || sensors[len(sensors)-1].Health != provider.HealthUnknown || logins != 2 {
		t.Errorf("%+v, %v after %d log-ins", sensors, err, logins)
	}
}

// A service that is too slow for all of its sensors within a call has told some; the others are unknown.
func TestSensorsUntilTheTimeIsUp(t *testing.T) {
	t.Parallel()
	s := loadShape(t, "dell-like.json")
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/Power") {
			select {
			case <-over:
			case <-r.Context().Done():
			}
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	c, err := redfish.Open(
		t.Context(),
		redfish.Config{URL: server.URL, Username: "u", Password: "p", Timeout: time.Minute},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	sensors, err := c.Sensors(ctx)
	if err != nil || len(sensors) < 2 || sensors[len(sensors)-1].Health != provider.HealthUnknown {
		t.Errorf("%+v, %v", sensors, err)
	}
}
