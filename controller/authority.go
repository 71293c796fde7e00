package controller

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/session"
	authoritystore "github.com/ingot-metal/ingot/controller/store/authority"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/pki"
)

const (
	// authorityEvery is how often the database is asked for changes of the CA. It is well below ca.Settle.
	authorityEvery = time.Second
	// renewalSpread is over what time an agent's renewal is spread, for each session of this controller.
	renewalSpread = 10 * time.Millisecond
)

// authorityFollower keeps the CA of this controller as the database has it.
type authorityFollower struct {
	store    *authoritystore.Store
	ca       *ca.Authority
	sessions *session.Registry
	secrets  *secret.Box
	clock    clock.Clock
	log      *slog.Logger
	// dataDir gets the root certificates for clients that trust them by file.
	dataDir, id string
	// grace is how long after its end a certificate may be traded for a new one.
	grace time.Duration
}

// follow keeps the CA as the database has it, and has agents renew certificates of older generations.
func (f *authorityFollower) follow(ctx context.Context) error {
	t := f.clock.NewTicker(authorityEvery)
	defer t.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
		err := f.load(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			f.log.Error("the state of the CA was not read; it is tried again", "error", err.Error())
		}
		failing = err != nil
		f.tellAgents()
	}
}

// load takes over the generations of the database, and stores those that the database has lost.
func (f *authorityFollower) load(ctx context.Context) error {
	all, err := f.store.Authorities(ctx)
	if err != nil {
		return err
	}
	lost, err := f.lostGenerations(all)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		f.log.Warn("the database does not know all generations of the CA; recording them again", "newest",
			lost[len(lost)-1].Number)
		if err := f.store.RestoreAuthorities(ctx, lost, "controller "+f.id, f.clock.Now()); err != nil {
			return err
		}
		if all, err = f.store.Authorities(ctx); err != nil {
			return err
		}
	}
	records := make([]ca.Record, 0, len(all))
	for _, g := range all {
		r, err := authoritystore.Open(f.secrets, g, f.grace)
		if err != nil {
			return err
		}
		records = append(records, r)
	}
	changed, err := f.ca.Follow(records)
	if err != nil || !changed {
		return err
	}
	f.log.Info("the CA has changed", "generation", f.ca.Generation(), "roots", len(f.ca.Generations()))
	return writeRoots(f.dataDir, f.ca)
}

// lostGenerations are on the disk of this controller, and not in the database, though the CA was rotated.
func (f *authorityFollower) lostGenerations(known []authoritystore.Generation) ([]authoritystore.Generation, error) {
	records, err := f.ca.Records()
	if err != nil || len(records) < 2 {
		return nil, err
	}
	var out []authoritystore.Generation
	for _, r := range records {
		if !slices.ContainsFunc(known, func(g authoritystore.Generation) bool { return g.Number == r.Generation }) {
			out = append(out, authoritystore.Seal(f.secrets, r))
		}
	}
	return out, nil
}

// writeRoots is for clients that trust our CA by file.
func writeRoots(dataDir string, authority *ca.Authority) error {
	if err := pki.WriteFile(filepath.Join(dataDir, "ca.pem"), authority.RootPEM(), 0o644); err != nil {
		return fmt.Errorf("write root certificates: %w", err)
	}
	return nil
}

// tellAgents notifies each session once of every change: which roots to trust, and to renew a certificate of an older
// generation. A session with a certificate that has been withdrawn ends; its agent enrols again.
func (f *authorityFollower) tellAgents() {
	changed := f.ca.Changed()
	if changed == 0 {
		return
	}
	signs, all := f.ca.Generation(), f.sessions.All()
	for _, s := range all {
		switch {
		case !slices.Contains(f.ca.Generations(), s.Generation):
			s.Close(session.ErrRevoked)
		case s.ToldOf(changed, s.Generation < signs):
			s.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Trust{Trust: &fleetv1.Trust{
				BundlePem: f.ca.RootPEM(), RenewCertificate: s.Generation < signs,
				SpreadMs: int32((renewalSpread * time.Duration(len(all))).Milliseconds()),
			}}})
		}
	}
}
