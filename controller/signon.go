package controller

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"

	"github.com/ingot-metal/ingot/controller/signon"
)

// signOnTime bounds one answer of the provider that people sign on with.
const signOnTime = 10 * time.Second

// openSignOn makes the provider that people sign on with. It is asked at each sign-on.
func (c *Controller) openSignOn(context.Context) error {
	s := c.cfg.SignOn
	if s.Issuer == "" {
		return nil
	}
	secret, err := s.Secret()
	if err != nil {
		return err
	}
	roots, pem, err := s.Roots()
	if err != nil {
		return err
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout: signOnTime, ResponseHeaderTimeout: signOnTime, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: time.Minute,
	}
	c.signOn = signon.New(signon.Config{
		Issuer: s.Issuer, ClientID: s.ClientID, ClientSecret: secret, CLIClientID: s.CLIClientID, Audiences: s.Audiences,
		Scopes: s.Scopes, GroupsClaim: s.GroupsClaim, NameClaim: s.NameClaim, TokenLife: s.TokenLife.Duration,
		Client: &http.Client{Transport: transport, Timeout: signOnTime}, CAPEM: pem, Store: c.store.Access, Clock: c.clock,
		Logger: c.log,
	})
	c.tokens.SignOn(c.signOn, s.LastSignOn.Duration)
	return nil
}
