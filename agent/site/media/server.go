package media

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/agent/site/cdimage"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

// ServerConfig is what a Server needs.
type ServerConfig struct {
	// Port takes http, and the one behind it https. BMCs reach them at the address that this machine has towards them.
	Port int
	Open Open
	// Limit bounds the open connections of a listener.
	Limit func(net.Listener) net.Listener
	Log   *slog.Logger
}

// Server sends images.
type Server struct {
	cfg    ServerConfig
	loader *cdimage.Loader

	mu     sync.Mutex
	byName map[string]Boot
	// ports take http and https; nil before they are bound.
	ports []int
}

// sendLimit is how long one answer may take: a BMC reads an image as the machine reads its drive.
const sendLimit = time.Hour

// NewServer makes a Server without images.
func NewServer(cfg ServerConfig) (*Server, error) {
	loader, err := findLoader()
	if err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, loader: loader}, nil
}

// Set replaces the served images.
func (s *Server) Set(byName map[string]Boot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName = byName
}

func (s *Server) find(name string) (Boot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.byName[name]
	return b, ok
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, Path)
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "there is nothing here", http.StatusNotFound)
		return
	}
	b, ok := s.find(name)
	if !ok {
		http.Error(w, "there is no such image, or it has had its use", http.StatusGone)
		return
	}
	image, err := s.open(r.Context(), b)
	if err != nil {
		s.cfg.Log.Error("image not sent", "machine_id", b.MachineID, "operation_id", b.OperationID, "remote", r.RemoteAddr,
			"error", err)
		w.Header().Set("Retry-After", "2")
		http.Error(w, "the image can't be had now", http.StatusServiceUnavailable)
		return
	}
	defer func() { _ = image.Close() }() // only read
	s.cfg.Log.Info("image asked for", "machine_id", b.MachineID, "operation_id", b.OperationID, "remote", r.RemoteAddr,
		"method", r.Method, "range", r.Header.Get("Range"))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("ETag", `"`+strings.TrimSuffix(name, nameEnd)+`"`)
	http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(image, 0, image.Size()))
}

// Run listens and serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	if s.loader == nil {
		s.cfg.Log.Warn("BIOS machines cannot start from attached images: install isolinux and syslinux-common",
			"looked_for", LoaderFiles)
	}
	listeners, err := s.listen(ctx)
	if err != nil {
		return err
	}
	group, groupCtx := task.New(ctx)
	for _, l := range listeners {
		server := &http.Server{
			Handler: s, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: sendLimit,
			IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
			ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
			BaseContext: func(net.Listener) context.Context { return groupCtx },
		}
		group.Go("serve", func(context.Context) error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve images: %w", err)
			}
			return nil
		})
		group.Go("stop", func(context.Context) error {
			<-groupCtx.Done()
			return server.Close()
		})
	}
	return group.Wait()
}

// listen binds both ports; with port 0 any two.
func (s *Server) listen(ctx context.Context) ([]net.Listener, error) {
	certificate, err := selfSigned()
	if err != nil {
		return nil, err
	}
	second := s.cfg.Port
	if second != 0 {
		second++
	}
	var out []net.Listener
	var ports []int
	for _, port := range []int{s.cfg.Port, second} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
		if err != nil {
			for _, other := range out {
				err = errors.Join(err, other.Close())
			}
			return nil, fmt.Errorf("listen for BMCs that fetch images: %w", err)
		}
		out, ports = append(out, s.cfg.Limit(l)), append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	out[1] = tls.NewListener(out[1], &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports = ports
	return out, nil
}

// urls are where a BMC at an endpoint may fetch an image. It fetches from the address that this machine has towards it.
func (s *Server) urls(ctx context.Context, endpoint, name string) ([]string, error) {
	s.mu.Lock()
	ports := s.ports
	s.mu.Unlock()
	if ports == nil {
		return nil, failure.Unavailable(
			"EXECUTION_FAILED",
			"the site's agent does not serve images yet, or cannot; see its log",
		)
	}
	e, err := bmc.ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	port := e.Port
	if port == "" {
		port = "443"
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(e.Host, port)) // which sends nothing
	if err != nil {
		return nil, fmt.Errorf("find the address towards the BMC: %w", err)
	}
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, fmt.Errorf("find the address towards the BMC: %w", err)
	}
	at := func(scheme string, port int) string {
		return scheme + "://" + netip.AddrPortFrom(local.Addr().Unmap().WithZone(""), uint16(port)).String() + Path + name
	}
	return []string{at("http", ports[0]), at("https", ports[1])}, nil
}

// selfSigned makes a certificate of this process. BMCs that take https alone don't look at who signed it.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ingot site agent"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
