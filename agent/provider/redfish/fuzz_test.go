package redfish

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
)

// seed adds every document of the shapes.
func seed(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var docs map[string]json.RawMessage
		if err := json.Unmarshal(text, &docs); err != nil {
			f.Fatal(err)
		}
		for _, doc := range docs {
			f.Add([]byte(doc))
		}
	}
	f.Add(
		[]byte(`{"Members":[{"@odata.id":"//x/y"},"/a",{"@odata.id":"http://x"},7,null],"Members@odata.nextLink":"\\\\x"}`))
	f.Add(
		[]byte(
			`{"Actions":{"#ComputerSystem.Reset":{"target":"@x/y","ResetType@Redfish.AllowableValues":[1,"On"]}},"PowerState":7}`,
		))
}

// FuzzDocuments: whatever comes, links stay in the service and readings make sense.
func FuzzDocuments(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		inside := func(paths ...path) {
			for _, p := range paths {
				if p != "" && (!strings.HasPrefix(string(p), "/") || strings.HasPrefix(string(p), "//") ||
					strings.ContainsAny(string(p), "\r\n \\#")) {
					t.Errorf("link %q", p)
				}
			}
		}
		if r, err := parseRoot(b); err == nil {
			inside(r.Systems, r.Chassis)
		}
		if c, err := parseCollection(b); err == nil {
			for _, m := range c.Members {
				var at path
				_ = json.Unmarshal(m, &at)
				inside(at)
			}
			inside(cleanPath(c.Next.V))
		}
		if s, err := parseSystem(b); err == nil {
			inside(s.EthernetInterfaces, s.LogServices, s.Settings.V.SettingsObject)
			inside(append(s.Links.V.Chassis.V, s.Links.V.ManagedBy.V...)...)
			for sw, kinds := range resetTypes {
				target, kind, ok := s.resetFor(sw)
				if inside(target); ok && !same(kind, kinds[0]) && !same(kind, kinds[len(kinds)-1]) {
					t.Errorf("%s by %s", sw, kind)
				}
			}
			if p := s.power(); p == "" {
				t.Errorf("power %q of %s", p, b)
			}
		}
		read, _ := parseReadings(b)
		for _, r := range read.sensors {
			if r.Name == "" {
				t.Errorf("reading %+v", r)
			}
		}
		parseEntry(b)
		macsOf(b)
	})
}

// oneAnswer is a service that returns the same document for every path but those of the log-in.
type oneAnswer struct {
	t    *testing.T
	body []byte
}

func (o oneAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "bmc.test" || r.URL.User != nil {
		o.t.Errorf("a request goes to %s", r.URL)
	}
	body, header, code := o.body, http.Header{}, http.StatusOK
	switch r.URL.Path {
	case "/redfish/v1/":
		body = []byte(
			`{"RedfishVersion":"1.0","Systems":{"@odata.id":"/redfish/v1/Systems"},"Links":{"Sessions":{"@odata.id":"/s"}}}`)
	case "/s":
		header.Set("X-Auth-Token", "x")
		header.Set("Location", "/s/1")
		code = http.StatusCreated
	case "/redfish/v1/Systems":
		body = []byte(`{"Members":[{"@odata.id":"/redfish/v1/Systems/1"}]}`)
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

// FuzzClient: with any document as its system, a client neither panics nor leaves the service, and its errors have a
// meaning.
func FuzzClient(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := newClient(Config{URL: "http://bmc.test", Username: "u", Password: "p"})
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		c.rt.base, c.rt.ctx = oneAnswer{t, b}, ctx
		if err := classify(ctx, c.login(ctx)); err != nil {
			t.Fatal(err)
		}
		if err := c.call(ctx, c.findSystem); err != nil {
			t.Fatal(err)
		}
		meant := func(what string, err error) {
			var refusal *effect.Refusal
			if err != nil && !ours(err) && !errors.As(err, &refusal) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err = c.PowerState(ctx)
		meant("power", err)
		meant("switch", c.Switch(ctx, provider.SwitchOff))
		_, err = c.BootOnce(ctx)
		meant("boot device", err)
		_, err = c.SetBootOnce(ctx, provider.BootPXE)
		meant("set boot device", err)
		meant("identify", c.Identify(ctx, true))
		_, err = c.Sensors(ctx)
		meant("sensors", err)
		_, err = c.EventLog(ctx, 3)
		meant("log", err)
	})
}
