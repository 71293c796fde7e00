package redfish_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/redfish"
)

// given is the file service.json of a case: a service as documents by path, and the known values of its machine. A
// document may be a text, which is sent as it stands, or {"status": 404}. Documents that every service needs are added.
type given struct {
	MACs   []string `json:"macs"`
	UUID   string   `json:"uuid"`
	Serial string   `json:"serial"`
	BIOS   bool     `json:"bios"`
	// BOM: every answer begins with a byte order mark.
	BOM  bool                       `json:"bom"`
	Docs map[string]json.RawMessage `json:"docs"`
}

// wanted is the file want.json: the right values. What it does not name is not asked for.
type wanted struct {
	// Open is the reason with which the service is refused, or the meaning of the error.
	Open  string `json:"open"`
	Power string `json:"power"`
	// Sensors are all of them: kind, name, value or state, and health.
	Sensors *[]string `json:"sensors"`
	// Faults and Unknown are the names of those with that health.
	Faults  *[]string `json:"faults"`
	Unknown *[]string `json:"unknown"`
	// Events are the first of the log: number, time, and message. Incomplete is what the log lacks.
	Events     *[]string `json:"events"`
	Incomplete string    `json:"incomplete"`
	MACs       *[]string `json:"macs"`
	Serial     string    `json:"serial"`
	Media      *[]string `json:"media"`
	// Boot is what a boot from PXE sends, or the reason with which it is refused.
	Boot *[]string `json:"boot"`
}

// TestCases walks the folders of testdata/cases. A new folder is a new test.
func TestCases(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/cases/*/service.json")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range dirs {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			t.Parallel()
			var in given
			var want wanted
			readCase(t, file, &in)
			readCase(t, filepath.Join(filepath.Dir(file), "want.json"), &want)
			judgeCase(t, in, want)
		})
	}
}

func readCase(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// serve answers with the documents of a case.
func (in given) serve(t *testing.T) (url string, patches func() []string) {
	t.Helper()
	docs, raw := map[string]map[string]any{}, map[string]string{}
	status := map[string]int{}
	for at, text := range in.Docs {
		var doc map[string]any
		var garbage string
		if json.Unmarshal(text, &garbage) == nil {
			raw[at] = garbage
			continue
		}
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		if code, ok := doc["status"].(float64); ok {
			status[at] = int(code)
			continue
		}
		docs[at] = doc
	}
	if docs["/redfish/v1"] == nil {
		docs["/redfish/v1"] = map[string]any{"@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot", "RedfishVersion": "1.6.0",
			"Systems": map[string]any{"@odata.id": "/redfish/v1/Systems"},
			"Links":   map[string]any{"Sessions": map[string]any{"@odata.id": "/redfish/v1/SessionService/Sessions"}}}
	}
	s := &shape{docs: docs}
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := strings.TrimSuffix(r.URL.Path, "/")
		if r.URL.RawQuery != "" {
			at += "?" + r.URL.RawQuery
		}
		switch text, garbage := raw[at]; {
		case status[at] != 0:
			w.WriteHeader(status[at])
		case garbage:
			_, _ = w.Write([]byte(text))
		case in.BOM:
			recorded := httptest.NewRecorder()
			s.ServeHTTP(recorded, r)
			for name, all := range recorded.Header() {
				w.Header()[name] = all
			}
			w.WriteHeader(recorded.Code)
			_, _ = w.Write(append([]byte("\ufeff"), recorded.Body.Bytes()...))
		default:
			s.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.server.Close)
	return s.server.URL, func() []string { _, all := s.asked(); return all }
}

func judgeCase(t *testing.T, in given, want wanted) {
	t.Helper()
	url, patches := in.serve(t)
	c, err := redfish.Open(t.Context(), redfish.Config{URL: url, Username: "u", Password: "p", MACs: in.MACs,
		UUID: in.UUID, Serial: in.Serial, BIOS: in.BIOS, Timeout: 2 * time.Second})
	if got := meaningOf(err); got != want.Open {
		t.Fatalf("open: %q (%v), want %q", got, err, want.Open)
	}
	if err != nil {
		return
	}
	defer c.Close(t.Context())
	if want.Power != "" {
		if got, err := c.PowerState(t.Context()); err != nil || string(got) != want.Power {
			t.Errorf("power %q, %v; want %q", got, err, want.Power)
		}
	}
	judgeSensors(t, c, want)
	if want.Events != nil {
		events, err := c.EventLog(t.Context(), max(len(*want.Events), 1))
		if got := fmt.Sprint(err); err == nil && want.Incomplete != "" || err != nil && !strings.Contains(got,
			cmp.Or(want.Incomplete, "nothing")) {
			t.Errorf("event log: %v, want %q", err, want.Incomplete)
		}
		equal(t, "events", each(events, func(e provider.Event) string {
			at := "-"
			if !e.At.IsZero() {
				at = e.At.Format(time.RFC3339)
			}
			return e.ID + " " + at + " " + e.Message
		}), want.Events)
	}
	if want.MACs != nil || want.Serial != "" {
		found, err := c.Hardware(t.Context())
		var some *provider.Incomplete
		if err != nil && !errors.As(err, &some) || want.Serial != "" && found.Serial != want.Serial {
			t.Errorf("hardware %+v, %v", found, err)
		}
		equal(t, "MAC addresses", found.MACs, want.MACs)
	}
	if want.Media != nil {
		media, err := c.Media(t.Context())
		if err != nil {
			t.Errorf("media: %v", err)
		}
		equal(t, "media", each(media, func(m provider.Medium) string { return m.Slot }), want.Media)
	}
	if want.Boot != nil {
		_, err := c.SetBootOnce(t.Context(), provider.BootPXE)
		got := patches()
		if err != nil {
			got = []string{meaningOf(err)}
		}
		equal(t, "boot from PXE", got, want.Boot)
	}
}

func judgeSensors(t *testing.T, c *redfish.Client, want wanted) {
	t.Helper()
	if want.Sensors == nil && want.Faults == nil && want.Unknown == nil {
		return
	}
	sensors, err := c.Sensors(t.Context())
	if err != nil {
		t.Errorf("sensors: %v", err)
	}
	var faults, unknown []string
	for _, s := range sensors {
		switch s.Health {
		case "warning", "critical":
			faults = append(faults, s.Name)
		case provider.HealthUnknown:
			unknown = append(unknown, s.Name)
		}
	}
	equal(t, "sensors", each(sensors, func(s provider.Sensor) string {
		said := s.State
		if !s.Stateful {
			said = fmt.Sprintf("%g %s", s.Value, s.Unit)
		}
		return strings.TrimSpace(fmt.Sprintf("%s %s: %s %s", s.Kind, s.Name, said, s.Health))
	}), want.Sensors)
	equal(t, "faults", faults, want.Faults)
	equal(t, "unknown", unknown, want.Unknown)
}

func each[T any](all []T, word func(T) string) []string {
	out := []string{}
	for _, x := range all {
		out = append(out, word(x))
	}
	return out
}

func equal(t *testing.T, what string, got []string, want *[]string) {
	t.Helper()
	if want != nil && !slices.Equal(got, *want) {
		t.Errorf("%s\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(*want, "\n  "))
	}
}

// meaningOf names an error in the words of want.json.
func meaningOf(err error) string {
	switch {
	case err == nil:
		return ""
	case effect.ReasonOf(err) != "":
		return effect.ReasonOf(err)
	case errors.Is(err, provider.ErrProtocol):
		return "protocol"
	case errors.Is(err, provider.ErrCredentials):
		return "credentials"
	case errors.Is(err, provider.ErrRefused):
		return "refused"
	}
	return err.Error()
}
