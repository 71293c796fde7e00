package httpboot

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/cache"
	"github.com/ingot-metal/ingot/agent/site/installerenrol"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

// FuzzRoute holds that a path is either exactly one of ours or nothing, and that its parts are what they claim to be.
func FuzzRoute(f *testing.F) {
	for _, path := range []string{
		"/boot/auto.ipxe", "/boot/auto.efi", "/boot/self", "/boot/tok/kernel", "/boot/tok/enrol", "/boot/tok/uki.efi",
		"/boot/a-Z_0/script.ipxe",
		"/blob/" + strings.Repeat("0a", 32), "/blob/" + strings.Repeat("0A", 32), "/boot/../blob/x", "/boot/%2e%2e/kernel",
		"//boot//kernel",
		"/boot/tok/kernel\x00", "/boot/" + strings.Repeat("x", 200) + "/initrd", "", "/", "*", "/boot/tok\n/kernel",
		"/blob/" + strings.Repeat("é", 32),
	} {
		f.Add("GET", path)
		f.Add("POST", path)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		r := parseRoute(method, path)
		switch r.kind {
		case bootFile, enrol:
			again := "/boot/" + r.token + "/" + r.file
			if r.kind == enrol {
				again += "enrol"
			}
			if again != path || !validToken(r.token) || strings.ContainsAny(r.token+r.file, "/\\\x00\n ") {
				t.Errorf("%q is taken for %+v", path, r)
			}
		case blob:
			if "/blob/"+r.sha256 != path || !cache.ValidDigest(r.sha256) {
				t.Errorf("%q is taken for %+v", path, r)
			}
		case autoScript, autoEFI, self:
			if !strings.HasPrefix(path, "/boot/") {
				t.Errorf("%q is taken for %+v", path, r)
			}
		}
		if r.kind == enrol && method != http.MethodPost || r.kind == bootFile && method == http.MethodPost {
			t.Errorf("%s of %q is taken", method, path)
		}
	})
}

// fuzzServer has one machine, and a cache that has nothing.
func fuzzServer(vouched func(*fleetv1.VouchInstallerRequest)) *Server {
	s := New(Config{
		Segment: segment.Segment{Name: "fuzz", Address: netip.MustParsePrefix("192.0.2.1/24"), HTTPPort: 80,
			Discovery: segment.DiscoveryBoot},
		Log:   slog.New(slog.DiscardHandler),
		Blobs: func(context.Context, string) (*cache.Blob, error) { return nil, cache.ErrNotFound },
		Owner: func(a netip.Addr) (segment.MAC, bool) { return cardOne, a == netip.MustParseAddr("192.0.2.7") },
		Vouch: func(_ context.Context, r *fleetv1.VouchInstallerRequest) (*fleetv1.VouchInstallerResponse, error) {
			vouched(r)
			return &fleetv1.VouchInstallerResponse{}, nil
		},
	})
	sum := strings.Repeat("0a", 32)
	s.Set(View{
		Assignments: []segment.Assignment{
			{MAC: cardOne, MachineID: "m-1", OperationID: "op-1", Mode: segment.BootInstaller, Token: "tok"},
			{MAC: cardTwo, MachineID: "m-2", Mode: segment.BootDisk, Token: "old"},
		},
		Installers: []Installer{{Arch: "amd64", Kernel: sum, Initrd: sum, UKI: sum},
			{Arch: "arm64", Kernel: sum, Initrd: sum, UKI: sum}},
		Blobs: []string{sum},
	})
	s.desk = installerenrol.New(s.deskConfig())
	return s
}

// FuzzAsked sends the parameters of iPXE. Only a MAC address that was parsed may come back in a script, for iPXE
// executes the answer.
func FuzzAsked(f *testing.F) {
	for _, q := range []string{
		"mac=02:00:00:00:00:01", "mac=02-00-00-00-00-01&arch=x86_64", "mac=0200.0000.0001&arch=arm64",
		"mac=02:00:00:00:00:02&arch=i386", "mac=",
		"arch=x86_64", "mac=02:00:00:00:00:09&arch=x", "mac=%0a%0dexit", "mac=02:00:00:00:00:01;arch=x",
		"mac=${net0/mac}&arch=${buildarch}",
		"mac=02:00:00:00:00:01%00", "mac=02:00:00:00:00:01&mac=x", "%zz", "mac=02:00:00:00:00:01&arch=%0a%23!ipxe",
	} {
		f.Add(q)
	}
	s := fuzzServer(func(*fleetv1.VouchInstallerRequest) { panic("vouched for a script") })
	f.Fuzz(func(t *testing.T, query string) {
		for _, path := range []string{"/boot/auto.ipxe", "/boot/auto.efi", "/boot/tok/script.ipxe", "/boot/old/script.ipxe",
			"/boot/self"} {
			r := httptest.NewRequest(http.MethodGet, "http://192.0.2.1"+path, nil)
			r.URL.RawQuery, r.RemoteAddr = query, "192.0.2.7:1234"
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if strings.HasPrefix(w.Body.String(), "#!ipxe") && !knownScript(s, query, w.Body.String()) {
				t.Errorf("%s?%s gives\n%s", path, query, w.Body)
			}
			if w.Code >= 500 {
				t.Errorf("%s?%s: %d", path, query, w.Code)
			}
		}
	})
}

// knownScript reports whether a script is one of those that the server can give by itself.
func knownScript(s *Server, query, script string) bool {
	q, _ := url.ParseQuery(query) // the part that was understood, as the server takes it
	mac, err := segment.ParseMAC(q.Get("mac"))
	known := []string{diskScript}
	if err == nil {
		known = append(known, askScript(s.base, mac))
	}
	for _, i := range s.view.Load().Installers {
		known = append(known, bootScript(s.base, target{token: "tok", mode: segment.BootInstaller, files: i}),
			bootScript(s.base, target{token: installerenrol.DiscoveryToken, mode: segment.BootRescue, files: i}))
	}
	for _, k := range known {
		if k == script {
			return true
		}
	}
	return false
}

// FuzzEnrol sends anything to the desk, from the machine itself and from elsewhere.
func FuzzEnrol(f *testing.F) {
	for _, body := range []string{
		`{"csr":"YQ==","mac":"02:00:00:00:00:01"}`, `{"csr":"YQ==","mac":"02:00:00:00:00:02"}`,
		`{"csr":"","mac":"02:00:00:00:00:01"}`, `{`, ``,
		`{"csr":"YQ==","mac":"02-00-00-00-00-01","boot_id":"b","hardware_fingerprint":"f","serial":"s"}`, `[]`, `null`,
		`{"csr":[1]}`,
		`{"mac":"02:00:00:00:00:01","csr":"YQ==","csr":"YQ=="}`, strings.Repeat("[", 1000), "\xff\xfe",
	} {
		f.Add("tok", []byte(body), true)
		f.Add("old", []byte(body), true)
		f.Add("discovery", []byte(body), false)
	}
	var asked []*fleetv1.VouchInstallerRequest
	s := fuzzServer(func(r *fleetv1.VouchInstallerRequest) { asked = append(asked, r) })
	f.Fuzz(func(t *testing.T, token string, body []byte, own bool) {
		asked = nil
		r := httptest.NewRequest(http.MethodPost, "http://192.0.2.1/", bytes.NewReader(body))
		r.URL.Path, r.RemoteAddr = "/boot/"+token+"/enrol", "192.0.2.8:1"
		if own {
			r.RemoteAddr = "192.0.2.7:1"
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		for _, a := range asked {
			if !own || a.GetMacAddress() != cardOne.String() || a.GetMachineId() != "m-1" || a.GetBootToken() != "tok" {
				t.Errorf("the controller was asked %v by %q with %q", a, token, body)
			}
		}
		if (w.Code == http.StatusOK) != (len(asked) == 1) {
			t.Errorf("%d after %d questions", w.Code, len(asked))
		}
	})
}

// FuzzOverlay reads a patched file at any place and compares it with one that was patched in memory.
func FuzzOverlay(f *testing.F) {
	f.Add([]byte("0123456789"), []byte("abc"), int64(3), int64(0), 4)
	f.Add([]byte("0123456789"), []byte("abcdefghijk"), int64(8), int64(7), 1)
	f.Add([]byte(""), []byte("x"), int64(0), int64(0), 0)
	f.Fuzz(func(t *testing.T, file, patch []byte, from, at int64, piece int) {
		if from < 0 || from > int64(len(file)) || at < 0 || piece < 1 || len(file) > 1<<16 {
			return
		}
		want := bytes.Clone(file)
		copy(want[from:], patch)
		want = want[min(at, int64(len(want))):]
		o := newOverlay(bytes.NewReader(file), int64(len(file)), from, patch)
		if _, err := o.Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		var got []byte
		buf := make([]byte, min(piece, 1<<16))
		for {
			n, err := o.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				break
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("from %d: %q, want %q", at, got, want)
		}
	})
}
