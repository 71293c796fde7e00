package httpboot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/cache"
	"github.com/ingot-metal/ingot/agent/site/installerenrol"
	"github.com/ingot-metal/ingot/agent/site/netdev"
	"github.com/ingot-metal/ingot/agent/site/relay"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/internal/task"
)

// The defaults of a Config.
const (
	DefaultMaxConns   = 4096
	DefaultPerMachine = 64
	DefaultMaxFiles   = 512
	DefaultStall      = time.Minute
)

// Config describes a Server.
type Config struct {
	Segment segment.Segment
	// Blobs opens a blob of the cache.
	Blobs func(ctx context.Context, sha256 string) (*cache.Blob, error)
	// Owner returns the network card that has an address now.
	Owner func(netip.Addr) (segment.MAC, bool)
	// Vouch asks the controller to certify an installer.
	Vouch func(context.Context, *fleetv1.VouchInstallerRequest) (*fleetv1.VouchInstallerResponse, error)
	// Certified is called after an installer of the assignment has got its certificate. Nil does nothing.
	Certified func(segment.Assignment)
	// PhonedHome keeps what a system has said, until the controller has it. When it returns nil that is durable.
	PhonedHome func(context.Context, PhoneCall) error
	// DialController is for the relay; nil means the network.
	DialController func(ctx context.Context, address string) (net.Conn, error)
	// MaxConns and PerMachine bound the connections, MaxFiles the files that are sent at once.
	MaxConns, PerMachine, MaxFiles int
	// Stall is how long a machine may take nothing.
	Stall time.Duration
	Log   *slog.Logger
}

// Server is the boot server of one segment.
type Server struct {
	cfg      Config
	view     atomic.Pointer[view]
	desk     *installerenrol.Handler
	relay    *relay.Relay
	listener net.Listener
	files    chan struct{}
	base     string
	uki      rooms
	heard    heard
}

// New makes a Server with an empty View.
func New(cfg Config) *Server {
	setDefaults(&cfg)
	s := &Server{cfg: cfg, files: make(chan struct{}, cfg.MaxFiles), base: cfg.Segment.HTTPBase()}
	s.Set(View{})
	s.relay = relay.New(relay.Config{
		Allowed: func(hostport string) bool { return s.view.Load().controllers[hostport] }, Dial: cfg.DialController,
		Log: cfg.Log,
	})
	return s
}

func setDefaults(cfg *Config) {
	if cfg.MaxConns == 0 {
		cfg.MaxConns = DefaultMaxConns
	}
	if cfg.PerMachine == 0 {
		cfg.PerMachine = DefaultPerMachine
	}
	if cfg.MaxFiles == 0 {
		cfg.MaxFiles = DefaultMaxFiles
	}
	if cfg.Stall == 0 {
		cfg.Stall = DefaultStall
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Owner == nil {
		cfg.Owner = func(netip.Addr) (segment.MAC, bool) { return segment.MAC{}, false }
	}
}

// Set replaces the View. When it returns, every new request is answered by it.
func (s *Server) Set(v View) { s.view.Store(newView(v)) }

// Listen binds the segment's address on its interface.
func (s *Server) Listen(ctx context.Context) error {
	at := netip.AddrPortFrom(s.cfg.Segment.Address.Addr(), uint16(s.cfg.Segment.HTTPPort))
	lc := net.ListenConfig{Control: netdev.Control(s.cfg.Segment.Interface)}
	l, err := lc.Listen(ctx, "tcp4", at.String())
	if err != nil {
		return fmt.Errorf("listen for HTTP on %s of %s: %w", at, s.cfg.Segment.Interface, err)
	}
	s.base = "http://" + l.Addr().String()
	s.listener = newLimiter(l, s.cfg.MaxConns, s.cfg.PerMachine)
	s.desk = installerenrol.New(s.deskConfig())
	return nil
}

func (s *Server) deskConfig() installerenrol.Config {
	cfg := installerenrol.Config{
		Token: func(token string) []segment.Assignment { return s.view.Load().token(token) }, Owner: s.cfg.Owner,
		Vouch: s.cfg.Vouch, Certified: s.cfg.Certified, Proxy: s.base, Log: s.cfg.Log,
	}
	if s.cfg.Segment.Discovery == segment.DiscoveryBoot {
		cfg.Waiting = func(mac segment.MAC) (segment.Assignment, bool) {
			a := s.view.Load().byMAC[mac]
			return a, a.NetBoots()
		}
	}
	return cfg
}

// Base is the URL of the server, after Listen.
func (s *Server) Base() string { return s.base }

// Address is host:port of the server, after Listen.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Relayed is how many connections to the controller are open.
func (s *Server) Relayed() int { return s.relay.Open() }

// Run serves until ctx ends. It must be called once after a Listen that went well, and closes the listener.
func (s *Server) Run(ctx context.Context) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		// Requests end with the server: a boot file is of no use without its server.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	group, groupCtx := task.New(ctx)
	group.Go("serve", func(context.Context) error {
		if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		return nil
	})
	group.Go("stop", func(context.Context) error {
		<-groupCtx.Done()
		s.relay.Close()
		return server.Close()
	})
	return group.Wait()
}
