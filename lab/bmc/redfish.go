package bmc

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
)

// RedfishConfig is what a Redfish service needs.
type RedfishConfig struct {
	Chassis Chassis
	// Listen is an address such as 127.0.0.1:0; Listener, where set, is used instead and is closed with the service.
	Listen   string
	Listener net.Listener
	// OldTLS offers nothing newer than TLS 1.1. Source: github.com/httptoolkit/httptoolkit, issue 132 (a Dell BMC).
	OldTLS bool
	// Plain serves HTTP without TLS.
	Plain bool
	// Certificate is shown instead of a self-signed one.
	Certificate *tls.Certificate
	User        string
	Password    string
	// Shape is how it differs from the plain schema.
	Shape Shape
	// Dial reaches the servers of images in the BMC's network; nil means this process's. MediaDir is where images are kept
	// that were fetched; the system's for temporary files when empty.
	Dial     func(ctx context.Context, address string) (net.Conn, error)
	MediaDir string
}

// Redfish is a running Redfish service of one machine (DMTF DSP0266 1.15 as far as it goes).
type Redfish struct {
	cfg    RedfishConfig
	desk   *desk
	server *http.Server
	addr   string
	group  *task.Group
	gone   chan struct{} // closed by Close; lets silent requests go
	// closing closes gone once.
	closing sync.Once
	led     ledState
	pending pendingBoot
	media   mediaState
}

// StartRedfish serves until Close.
func StartRedfish(ctx context.Context, cfg RedfishConfig) (*Redfish, error) {
	l := cfg.Listener
	if l == nil {
		var err error
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen); err != nil {
			return nil, fmt.Errorf("listen for Redfish: %w", err)
		}
	}
	r := &Redfish{
		cfg: cfg, addr: l.Addr().String(), gone: make(chan struct{}),
		desk: &desk{user: cfg.User, password: cfg.Password, sessions: map[string]string{}},
	}
	if !cfg.Plain {
		cert, err := cfg.certificate()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make the BMC's certificate: %w", err), l.Close())
		}
		served := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		if cfg.OldTLS {
			served.MinVersion, served.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		}
		l = tls.NewListener(l, served)
	}
	r.server = &http.Server{Handler: r.handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet()}
	r.group, _ = task.New(context.WithoutCancel(ctx))
	r.group.Go("redfish", func(context.Context) error {
		if err := r.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return r, nil
}

func (cfg RedfishConfig) certificate() (tls.Certificate, error) {
	if cfg.Certificate != nil {
		return *cfg.Certificate, nil
	}
	return selfSigned(cfg.Chassis.About().Name)
}

// Addr is host:port.
func (r *Redfish) Addr() string { return r.addr }

// Endpoint is the address as a machine's BMC endpoint.
func (r *Redfish) Endpoint() string {
	if r.cfg.Plain {
		return "redfish+http://" + r.addr
	}
	return "redfish://" + r.addr
}

// Misbehave sets the faults from now on.
func (r *Redfish) Misbehave(f Faults) { r.desk.set(f) }

// SetPassword changes the account's password and unlocks it. Sessions stay.
func (r *Redfish) SetPassword(password string) {
	r.desk.mu.Lock()
	defer r.desk.mu.Unlock()
	r.desk.password, r.desk.counts.Locked, r.desk.wrong = password, false, 0
}

// ForgetSessions ends every session, as a restart of the BMC does.
func (r *Redfish) ForgetSessions() {
	r.desk.mu.Lock()
	defer r.desk.mu.Unlock()
	clear(r.desk.sessions)
}

// Counts is what came in so far.
func (r *Redfish) Counts() Counts { return r.desk.counted() }

// Close stops the service and cuts its connections. It may be called again.
func (r *Redfish) Close() error {
	r.closing.Do(func() { close(r.gone) })
	return errors.Join(r.server.Close(), r.group.Wait(), r.media.forget())
}

// handler serves the service root, the version document and the log-in without a session; all else needs one.
func (r *Redfish) handler() http.Handler {
	open, inner := http.NewServeMux(), http.NewServeMux()
	r.openRoutes(open)
	r.routes(inner)
	open.Handle("/", r.loggedIn(inner))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		f := r.desk.arrived()
		f.Slow += r.cfg.Shape.Slow
		defer r.desk.left()
		if !r.patience(req.Context(), f) {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("OData-Version", "4.0")
		w.Header().Set("Cache-Control", "no-cache")
		if !r.slashed(w, req) {
			return
		}
		if f.Broken && req.URL.Path != rootPath && req.URL.Path != rootPath+"/" {
			refuse(w, http.StatusInternalServerError, "InternalError", "The request failed due to an internal service error.")
			return
		}
		open.ServeHTTP(w, req)
	})
}

// patience waits as the faults want, and reports whether an answer is due.
func (r *Redfish) patience(ctx context.Context, f Faults) bool {
	if !f.Silent && f.Slow == 0 {
		return true
	}
	var late <-chan time.Time
	if !f.Silent {
		late = time.After(f.Slow)
	}
	select {
	case <-late:
		return true
	case <-ctx.Done():
	case <-r.gone:
	}
	return false
}

// refuse answers with the error body of DSP0266, 8.6.
func refuse(w http.ResponseWriter, status int, id, message string) {
	refuseAs(w, status, "Base.1.15."+id, message)
}

// refuseAs is refuse with the id of any registry.
func refuseAs(w http.ResponseWriter, status int, id, message string) {
	info := map[string]any{
		"@odata.type": "#Message.v1_1_2.Message", "MessageId": id,
		"Message": message, "MessageSeverity": "Critical", "Resolution": "None.",
	}
	writeJSON(w, status, map[string]any{"error": map[string]any{
		"code": id, "message": message, "@Message.ExtendedInfo": []any{info},
	}})
}

func writeJSON(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	// A client that went away is not our trouble.
	_ = json.NewEncoder(w).Encode(doc)
}
