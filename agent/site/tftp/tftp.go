// Package tftp serves PXE firmware its first program (RFC 1350, with the options of RFC 2347 to 2349): a fixed set of
// files, read at the start and served from memory. There are no paths, and nothing can be written.
package tftp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	upstream "github.com/pin/tftp/v3"

	"github.com/ingot-metal/ingot/agent/site/netdev"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// Config describes the server on one network device.
type Config struct {
	// Interface is the network device, Address the site agent's own on it.
	Interface string
	Address   netip.Addr
	// Files has the served files by name.
	Files map[string][]byte
	// Most is how many transfers run at once, MostEach how many of one client; further ones are refused, and their
	// clients ask again. 256 and 8 when zero.
	Most, MostEach int
	Clock          clock.Clock
	Log            *slog.Logger
}

// What a transfer may take. A client that is gone costs its place for timeout × (retries + 1).
const (
	port    = 69
	timeout = time.Second
	retries = 6
	// maxFile is the largest file that Load takes: a network boot program is a tenth of it.
	maxFile = 16 << 20
)

// Server serves files to the machines of one network device.
type Server struct {
	cfg   Config
	ready chan struct{}
	once  sync.Once

	mu      sync.Mutex
	running map[netip.Addr]int
	total   int
}

// New checks the configuration. Nothing is opened before Run.
func New(cfg Config) (*Server, error) {
	if cfg.Interface == "" || !cfg.Address.Is4() || cfg.Log == nil || cfg.Clock == nil {
		return nil, errors.New("TFTP server needs an interface, its IPv4 address, a clock and a log")
	}
	for name := range cfg.Files {
		if name == "" || strings.ContainsAny(name, "/\\\x00") {
			return nil, fmt.Errorf("TFTP server cannot serve a file by the name %q", name)
		}
	}
	cfg.Most, cfg.MostEach = cmp.Or(cfg.Most, 256), cmp.Or(cfg.MostEach, 8)
	return &Server{cfg: cfg, ready: make(chan struct{}), running: map[netip.Addr]int{}}, nil
}

// Debian is where its package ipxe puts the programs.
const Debian = "/usr/lib/ipxe"

// Load reads the files of these names in a directory. Those that are not there are given as missing: a site whose
// machines don't need them works without.
func Load(dir string, names ...string) (files map[string][]byte, missing []string, err error) {
	files = map[string][]byte{}
	for _, name := range names {
		data, err := readFile(filepath.Join(dir, filepath.Base(name)))
		switch {
		case errors.Is(err, os.ErrNotExist):
			missing = append(missing, name)
		case err != nil:
			return nil, nil, fmt.Errorf("load boot program: %w", err)
		default:
			files[name] = data
		}
	}
	return files, missing, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return data, err
}

// Ready is closed when requests are answered for the first time.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Names returns the names of the served files.
func (s *Server) Names() []string {
	var names []string
	for name := range s.cfg.Files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Run serves until ctx ends or the device goes away. It returns when no transfer runs any more, at most some seconds
// later.
func (s *Server) Run(ctx context.Context) error {
	device, err := netdev.Find(s.cfg.Interface, s.cfg.Address)
	if err != nil {
		return err
	}
	// On the one address: a request to a broadcast address must not be answered (RFC 1123, 4.2.3.4).
	conn, err := netdev.ListenUDP(ctx, s.cfg.Interface, netip.AddrPortFrom(s.cfg.Address, port))
	if err != nil {
		return err
	}
	return s.serve(ctx, conn, func(ctx context.Context) error {
		return netdev.Watch(ctx, s.cfg.Clock, device, s.cfg.Address)
	})
}

// serve answers on conn until watch returns.
func (s *Server) serve(ctx context.Context, conn *net.UDPConn, watch func(context.Context) error) error {
	g, ctx := task.New(ctx)
	server := upstream.NewServer(s.handler(ctx), nil)
	server.SetTimeout(timeout)
	server.SetRetries(retries)
	server.SetBackoff(func(int) time.Duration { return 0 }) // the time-out is enough
	g.Go("tftp", func(context.Context) error { return server.Serve(conn) })
	g.Go("device", func(ctx context.Context) error {
		err := watch(ctx)
		server.Shutdown()
		return err
	})
	s.once.Do(func() { close(s.ready) })
	s.cfg.Log.Info("serve TFTP", "interface", s.cfg.Interface, "files", strings.Join(s.Names(), " "))
	return g.Wait()
}

// find returns the file of a name. Some firmware puts a slash before it, and old ROMs put bytes 0xff behind it: they
// read the name up to a zero, past the end of the DHCP options.
func (s *Server) find(name string) ([]byte, bool) {
	for strings.HasSuffix(name, "\xff") {
		name = name[:len(name)-1]
	}
	if len(name) > 1 && (name[0] == '/' || name[0] == '\\') {
		name = name[1:]
	}
	data, ok := s.cfg.Files[name]
	return data, ok
}

// Errors that a client may see.
var (
	errNoFile = errors.New("no such file")
	errBusy   = errors.New("too many transfers, ask again")
	errBroken = errors.New("internal error")
)

// handler runs one transfer on a goroutine of the library. What panics there fails that transfer alone.
func (s *Server) handler(ctx context.Context) func(string, io.ReaderFrom) error {
	return func(name string, to io.ReaderFrom) error {
		err := task.Run(ctx, "tftp transfer", func(ctx context.Context) error { return s.transfer(ctx, name, to) })
		if broken := (*task.PanicError)(nil); errors.As(err, &broken) {
			// The library panics, for one, on options that are longer than its buffer for the answer. Clients are
			// sent the text of an error.
			s.cfg.Log.Warn("TFTP transfer ended by a panic", "panic", fmt.Sprint(broken.Value))
			return errBroken
		}
		return err
	}
}

func (s *Server) transfer(ctx context.Context, name string, to io.ReaderFrom) error {
	peer, ok := to.(upstream.OutgoingTransfer)
	if !ok {
		return errors.New("the library does not say who asks")
	}
	remote := peer.RemoteAddr()
	client := remote.AddrPort().Addr().Unmap()
	data, ok := s.find(name)
	if !ok {
		s.cfg.Log.Debug("no file of that name over TFTP", "client", client.String(), "name", fmt.Sprintf("%.64q", name))
		return errNoFile
	}
	if !s.begin(client) {
		s.cfg.Log.Warn("too many TFTP transfers", "client", client.String())
		return errBusy
	}
	defer s.end(client)
	start := s.cfg.Clock.Now()
	// The size must be set before the transfer begins. It is sent only to clients that ask for it (tsize, RFC 2349).
	peer.SetSize(int64(len(data)))
	n, err := to.ReadFrom(reader{ctx, bytes.NewReader(data)})
	if err != nil {
		// Firmware that only wants to know the size breaks off as well.
		s.cfg.Log.Debug("TFTP transfer broken off", "client", client.String(), "name", name, "bytes", n, "error", err)
		return err
	}
	s.cfg.Log.Info("sent boot program over TFTP", "client", client.String(), "name", name, "bytes", n,
		"took", s.cfg.Clock.Now().Sub(start))
	return nil
}

// reader ends a transfer when the server is to stop.
type reader struct {
	ctx  context.Context
	from *bytes.Reader
}

// Read is of io.Reader.
func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}

func (s *Server) begin(client netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.cfg.Most || s.running[client] >= s.cfg.MostEach {
		return false
	}
	s.total++
	s.running[client]++
	return true
}

func (s *Server) end(client netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.running[client]--; s.running[client] == 0 {
		delete(s.running, client)
	}
}
