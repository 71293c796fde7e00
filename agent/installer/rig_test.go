package installer_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/agenttest"
	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/installer"
	"github.com/ingot-metal/ingot/agent/pid1"
	"github.com/ingot-metal/ingot/agent/site/installerenrol"
	"github.com/ingot-metal/ingot/agent/site/relay"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

const token = "0123456789abcdef0123456789abcdef"

var mac = segment.MAC{0x52, 0x54, 0, 0, 0, 1}

// site is a boot server with a desk and a relay, and an installer that was booted from it.
type site struct {
	t       *testing.T
	c       *agenttest.Controller
	machine disktest.Machine
	mode    segment.BootMode
	cfg     installer.Config
	console *console

	mu    sync.Mutex
	blobs map[string][]byte
	desk  http.Handler // in front of the real one; nil answers let it through
}

// console is where an installer logs.
type console struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.Write(b)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.String()
}

func newSite(t *testing.T, hooks agenttest.Hooks) *site {
	t.Helper()
	s := &site{t: t, c: agenttest.New(t, hooks), mode: segment.BootInstaller, blobs: map[string][]byte{},
		console: &console{}}
	var err error
	if s.machine, err = disktest.NewMachine(t.TempDir(), 96<<20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.machine.Detach(); err != nil {
			t.Error(err)
		}
	})
	log := slog.New(slog.NewTextHandler(s.console, nil))
	d := installerenrol.New(installerenrol.Config{
		Token: s.assignments, Owner: func(netip.Addr) (segment.MAC, bool) { return mac, true }, Vouch: s.c.Vouch,
		Log: slog.New(slog.DiscardHandler),
	})
	r := relay.New(relay.Config{Allowed: func(to string) bool { return to == s.c.FleetAddr },
		Log: slog.New(slog.DiscardHandler)})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { s.serve(w, req, d, r) }))
	t.Cleanup(srv.Close)
	t.Cleanup(r.Close)
	s.cfg = installer.Config{
		Boot:     pid1.Installer{Site: srv.URL, Token: token, MAC: mac.String()},
		StateDir: t.TempDir(), Host: host.Config{Root: s.machine.Root, StateTemplate: "template"}, Log: log,
	}
	return s
}

func (s *site) assignments(got string) []segment.Assignment {
	if got != token {
		return nil
	}
	return []segment.Assignment{{MAC: mac, MachineID: s.c.MachineID, OperationID: "op-1", Mode: s.mode, Token: token}}
}

func (s *site) serve(w http.ResponseWriter, req *http.Request, d *installerenrol.Handler, r *relay.Relay) {
	switch {
	case req.Method == http.MethodConnect:
		r.ServeHTTP(w, req)
	case strings.HasPrefix(req.URL.Path, "/blob/"):
		s.mu.Lock()
		b := s.blobs[strings.TrimPrefix(req.URL.Path, "/blob/")]
		s.mu.Unlock()
		if b == nil {
			http.NotFound(w, req)
			return
		}
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(b))
	default:
		parts := strings.Split(req.URL.Path, "/")
		if len(parts) != 4 || parts[1] != "boot" || parts[3] != "enrol" || req.Method != http.MethodPost {
			http.NotFound(w, req)
			return
		}
		if s.desk != nil {
			rec := httptest.NewRecorder()
			if s.desk.ServeHTTP(rec, req); rec.Code != http.StatusContinue {
				w.WriteHeader(rec.Code)
				w.Write(rec.Body.Bytes())
				return
			}
		}
		d.Serve(w, req, parts[2])
	}
}

// start runs the installer until the test ends or stop is called.
func (s *site) start() (stop func() error) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- installer.Run(ctx, s.cfg) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	s.t.Cleanup(func() {
		if err := stop(); err != nil {
			s.t.Errorf("installer: %v\n%s", err, s.console)
		}
	})
	return stop
}
