package redfish

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/common"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/cloudmeta"
)

// Config has the BMC's address and the settings of the connection.
type Config struct {
	// URL is scheme, host and port: https://192.0.2.7:443.
	URL                string
	Username, Password string
	// TLS decides whom to trust. It is not used for http.
	TLS *tls.Config
	// System is the path of the system; empty if none was named. MACs, UUID and Serial identify it where a service has
	// several.
	System       string
	MACs         []string
	UUID, Serial string
	// BIOS: the machine's firmware is known to be no UEFI.
	BIOS bool
	// Timeout of one request; 0 means 10 s.
	Timeout time.Duration
	// Grace is how long the answer to a log-in is awaited after its caller has gone; 0 means 2 s.
	Grace time.Duration
	// Heard, where set, is called with the time of each answer.
	Heard func(time.Duration)
	// OneLogin: a session that has ended is not renewed, so that the password is used for one log-in.
	OneLogin bool
	// Account opens a session for the account alone: no system is looked for.
	Account bool
	// MaxDocument is how many bytes a document may have; 0 means 8 MiB.
	MaxDocument int
}

// Client is logged in at one BMC and knows the system there. Its methods may be called from several goroutines and
// run one after the other.
type Client struct {
	mu     sync.Mutex
	cfg    Config
	rt     *transport
	pool   *http.Transport
	api    *gofish.APIClient
	basic  bool // no session: the password goes with each request
	root   serviceRoot
	system path
	// accounts is the collection of accounts; empty where there is none.
	accounts path
	// renewed: the session was made anew within this call. proven is how many documents the log-in has read since, and
	// quiet how many requests in a row got no answer.
	renewed       bool
	proven, quiet int
	// last is the document that was read last.
	last path
}

// Probe reads the service root, which needs no log-in, and returns nil for a Redfish service, else ErrSilent or
// ErrProtocol.
func Probe(ctx context.Context, cfg Config) error {
	c, err := newClient(cfg)
	if err != nil {
		return err
	}
	defer c.pool.CloseIdleConnections()
	c.rt.ctx = ctx
	err = essential(ctx, c.readRoot(ctx))
	if errors.Is(err, provider.ErrCredentials) {
		return nil // it keeps even its root to itself, and it speaks HTTP as Redfish does
	}
	return err
}

// Vendor reads the service root, which needs no log-in, and returns the vendor that it names, if any. It fails where
// Probe does, and where the root is kept to those who are logged in: nothing shows then that this is Redfish.
func Vendor(ctx context.Context, cfg Config) (string, error) {
	c, err := newClient(cfg)
	if err != nil {
		return "", err
	}
	defer c.pool.CloseIdleConnections()
	c.rt.ctx = ctx
	err = essential(ctx, c.readRoot(ctx))
	return c.root.Vendor.V, err
}

// Open logs in and finds the system. Close must be called on the Client.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	c.rt.ctx = ctx
	err = c.rt.hint(essential(ctx, c.login(ctx)))
	if err == nil {
		err = c.call(ctx, c.first)
	}
	if c.basic && statusOf(err) == http.StatusForbidden {
		err = wrongPassword(err) // the first document was the log-in
	}
	if errors.Is(err, provider.ErrSilent) && c.rt.unanswered.Load() {
		err = fmt.Errorf("%w: %w", provider.ErrUnanswered, err)
	}
	if err != nil {
		c.leave(ctx)
		return nil, fmt.Errorf("open Redfish service: %w", err)
	}
	return c, nil
}

// first reads the document that later requests start from: the system, or to change a password the account service.
// With HTTP basic authentication this read is what checks the password.
func (c *Client) first(ctx context.Context) error {
	if !c.cfg.Account {
		return c.findSystem(ctx)
	}
	if c.basic {
		return c.findAccounts(ctx)
	}
	return nil
}

func newClient(cfg Config) (*Client, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Grace == 0 {
		cfg.Grace = 2 * time.Second
	}
	origin, err := url.Parse(cfg.URL)
	if err != nil || origin.Host == "" || origin.Path != "" {
		return nil, fmt.Errorf("redfish: bad URL %q", cfg.URL)
	}
	dial := &net.Dialer{Timeout: 5 * time.Second, Control: cloudmeta.Control}
	pool := &http.Transport{
		DialContext:     dial.DialContext,
		TLSClientConfig: cfg.TLS, TLSHandshakeTimeout: cfg.Timeout, IdleConnTimeout: time.Minute,
		MaxIdleConnsPerHost: 1, MaxResponseHeaderBytes: 64 << 10,
	}
	if cfg.MaxDocument == 0 {
		cfg.MaxDocument = maxDocument
	}
	rt := &transport{base: pool, origin: origin, timeout: cfg.Timeout, grace: cfg.Grace, heard: cfg.Heard,
		most: cfg.MaxDocument}
	if origin.Scheme == "https" {
		port := cmp.Or(origin.Port(), "443")
		rt.rsaOnly = takesRSA(dial, net.JoinHostPort(origin.Hostname(), port))
	}
	return &Client{cfg: cfg, pool: pool, rt: rt}, nil
}

func (c *Client) connect(ctx context.Context, basic bool) (*gofish.APIClient, error) {
	return gofish.ConnectContext(context.WithoutCancel(ctx), gofish.ClientConfig{
		Endpoint: c.cfg.URL, Username: c.cfg.Username, Password: c.cfg.Password, BasicAuth: basic,
		HTTPClient: &http.Client{Transport: c.rt, CheckRedirect: redirect},
	})
}

// login makes one attempt with the password. Where there are no sessions the first request is that attempt.
func (c *Client) login(ctx context.Context) error {
	api, err := c.connect(ctx, false)
	if err == nil {
		if s, sessionErr := api.GetSession(); sessionErr == nil && s.Token != "" {
			c.api, c.basic = api, false
			return nil
		}
		err = &refused{status: http.StatusNotImplemented, detail: "a session without a token"}
	}
	if err = classify(ctx, err); !sessionless(err) {
		return wrongPassword(err)
	}
	if c.api, err = c.connect(ctx, true); err != nil {
		return err
	}
	c.basic = true
	return nil
}

// sessionless reports whether a refused log-in means that there are no sessions, or none left, rather than no.
func sessionless(err error) bool {
	var r *refused
	if errors.As(err, &r) && r.full {
		return true
	}
	switch statusOf(err) {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// wrongPassword takes a log-in that was refused with 400 or 403 for one with a wrong password: iLO answers so, and to
// try again may lock the account.
func wrongPassword(err error) error {
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusForbidden:
		return fmt.Errorf("%w: %w", provider.ErrCredentials, err)
	}
	return err
}

// call runs fn with ctx for its requests. A session that has ended is renewed, once.
func (c *Client) call(ctx context.Context, fn func(context.Context) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rt.ctx = ctx
	c.renewed, c.proven, c.quiet = false, 0, 0
	err := c.rt.hint(classify(ctx, fn(ctx)))
	if !errors.Is(err, provider.ErrCredentials) || c.basic || c.cfg.OneLogin {
		return err
	}
	old := c.api
	if err := c.rt.hint(classify(ctx, c.login(ctx))); err != nil {
		return err
	}
	c.forget(old)
	c.renewed, c.proven, c.quiet = true, 0, 0
	return c.rt.hint(classify(ctx, fn(ctx)))
}

// forget ends the session of an earlier log-in, which is mostly over: a service may have refused a request for another
// reason than that.
func (c *Client) forget(old *gofish.APIClient) {
	s, err := old.GetSession()
	if err != nil || c.basic {
		return
	}
	// A session that is refused here had already ended.
	_ = c.api.Service.DeleteSession(s.ID)
}

func (c *Client) readRoot(ctx context.Context) error {
	if c.api == nil {
		// Without a name there is no log-in.
		api, err := gofish.ConnectContext(context.WithoutCancel(ctx), gofish.ClientConfig{
			Endpoint: c.cfg.URL, HTTPClient: &http.Client{Transport: c.rt, CheckRedirect: redirect},
		})
		if err != nil {
			return err
		}
		c.api = api
	}
	b, _, err := c.get(common.DefaultServiceRoot)
	if err != nil {
		return err
	}
	c.root, err = parseRoot(b)
	return err
}

// get reads a document and its ETag.
func (c *Client) get(p path) (b []byte, etag string, err error) {
	resp, err := c.api.Get(string(p))
	if err == nil {
		defer resp.Body.Close()
		if b, err = io.ReadAll(resp.Body); err == nil {
			c.quiet, c.last = 0, p
			if plain(p) != plain(common.DefaultServiceRoot) {
				c.proven++ // the root needs no log-in
			}
			return b, resp.Header.Get("ETag"), nil
		}
	}
	if c.quiet++; statusOf(classify(c.rt.ctx, err)) != 0 {
		c.quiet = 0
	}
	return nil, "", err
}

// Close ends the session, as far as the BMC lets it, and the connections.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave(ctx)
	return nil
}

// leave ends the session also where ctx has ended, in the time of one request: a BMC has few sessions, and keeps one
// that is left behind for half an hour.
func (c *Client) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Timeout)
	defer cancel()
	c.logout(ctx)
}

func (c *Client) logout(ctx context.Context) {
	c.rt.ctx = ctx
	if c.api != nil && !c.basic {
		if _, err := c.api.GetSession(); err == nil {
			c.api.Logout() // a BMC that is gone forgets the session by itself
		}
	}
	c.pool.CloseIdleConnections()
}
