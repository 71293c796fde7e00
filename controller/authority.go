package controller

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/session"
	authoritystore "github.com/ingot-metal/ingot/controller/store/authority"
	"github.com/ingot-metal/ingot/internal/pki"
)

const (
	// authorityEvery is how often the database is asked for changes of the CA. It is well below ca.Settle.
	authorityEvery = time.Second
	// renewalSpread is over what time an agent's renewal is spread, for each session of this controller.
	renewalSpread = 10 * time.Millisecond
)

// followAuthority keeps the CA as the database has it, and has agents renew certificates of older generations.
func (c *Controller) followAuthority(ctx context.Context) error {
	t := c.clock.NewTicker(authorityEvery)
	defer t.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
		err := c.loadAuthority(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			c.log.Error("the state of the CA was not read; it is tried again", "error", err.Error())
		}
		failing = err != nil
		c.tellAgents()
	}
}

// loadAuthority takes over the generations of the database, and gives it those that it has lost.
func (c *Controller) loadAuthority(ctx context.Context) error {
	all, err := c.store.Authorities.Authorities(ctx)
	if err != nil {
		return err
	}
	lost, err := c.lostGenerations(all)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		c.log.Warn("the database does not know all generations of the CA; recording them again", "newest",
			lost[len(lost)-1].Number)
		if err := c.store.Authorities.RestoreAuthorities(ctx, lost, "controller "+c.id, c.clock.Now()); err != nil {
			return err
		}
		if all, err = c.store.Authorities.Authorities(ctx); err != nil {
			return err
		}
	}
	records := make([]ca.Record, 0, len(all))
	for _, g := range all {
		r, err := authoritystore.Open(c.secrets, g, c.cfg.Agents.ReenrollGrace.Duration)
		if err != nil {
			return err
		}
		records = append(records, r)
	}
	changed, err := c.ca.Follow(records)
	if err != nil || !changed {
		return err
	}
	c.log.Info("the CA has changed", "generation", c.ca.Generation(), "roots", len(c.ca.Generations()))
	return c.writeRoots()
}

// lostGenerations are on the disk of this controller, and not in the database, though the CA was rotated.
func (c *Controller) lostGenerations(known []authoritystore.Generation) ([]authoritystore.Generation, error) {
	records, err := c.ca.Records()
	if err != nil || len(records) < 2 {
		return nil, err
	}
	var out []authoritystore.Generation
	for _, r := range records {
		if !slices.ContainsFunc(known, func(g authoritystore.Generation) bool { return g.Number == r.Generation }) {
			out = append(out, authoritystore.Seal(c.secrets, r))
		}
	}
	return out, nil
}

// writeRoots is for clients that trust our CA by file.
func (c *Controller) writeRoots() error {
	if err := pki.WriteFile(filepath.Join(c.cfg.DataDir, "ca.pem"), c.ca.RootPEM(), 0o644); err != nil {
		return fmt.Errorf("write root certificates: %w", err)
	}
	return nil
}

// tellAgents tells each session once of every change: which roots to trust, and to renew a certificate of an older
// generation. A session with a certificate that has been withdrawn ends; its agent enrols again.
func (c *Controller) tellAgents() {
	changed := c.ca.Changed()
	if changed == 0 {
		return
	}
	signs, all := c.ca.Generation(), c.sessions.All()
	for _, s := range all {
		switch {
		case !slices.Contains(c.ca.Generations(), s.Generation):
			s.Close(session.ErrRevoked)
		case s.ToldOf(changed, s.Generation < signs):
			s.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Trust{Trust: &fleetv1.Trust{
				BundlePem: c.ca.RootPEM(), RenewCertificate: s.Generation < signs,
				SpreadMs: int32((renewalSpread * time.Duration(len(all))).Milliseconds()),
			}}})
		}
	}
}

// withRoots has every handshake verify agents against the roots that are in force then.
func (c *Controller) withRoots(t *tls.Config) *tls.Config {
	out := t.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := t.Clone()
		now.ClientCAs = c.ca.Roots()
		return now, nil
	}
	return out
}
