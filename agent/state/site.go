package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/lease"
)

// SiteStore is the part of the agent's memory that the site's services use.
type SiteStore struct{ store *Store }

var _ lease.Store = SiteStore{}

// Site returns the part that the site's services use.
func (s *Store) Site() SiteStore { return SiteStore{s} }

// SaveSiteDocument replaces what a site agent serves by.
func (s SiteStore) SaveSiteDocument(ctx context.Context, doc *fleetv1.SiteDocument) error {
	body, err := proto.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encode site document: %w", err)
	}
	return s.store.write(ctx, "store site document", func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO site_document (id, revision, body) VALUES (1, ?, ?)
			ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, body = excluded.body`, doc.GetRevision(), body)
		return err
	})
}

// SiteDocument reads what SaveSiteDocument stored; nil when there is nothing.
func (s SiteStore) SiteDocument(ctx context.Context) (doc *fleetv1.SiteDocument, err error) {
	err = s.store.read(ctx, "read site document", func() error {
		var body []byte
		err := s.store.db.QueryRowContext(ctx, "SELECT body FROM site_document").Scan(&body)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		doc = &fleetv1.SiteDocument{}
		return proto.Unmarshal(body, doc)
	})
	return doc, err
}

// LoadLeases implements lease.Store.
func (s SiteStore) LoadLeases(ctx context.Context, segment string) (out []lease.Lease, err error) {
	err = s.store.read(ctx, "read leases", func() (err error) {
		rows, err := s.store.db.QueryContext(ctx, "SELECT body FROM leases WHERE segment = ? ORDER BY address", segment)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			var body []byte
			if err := rows.Scan(&body); err != nil {
				return err
			}
			var l lease.Lease
			if err := json.Unmarshal(body, &l); err != nil {
				return err
			}
			out = append(out, l)
		}
		return rows.Err()
	})
	return out, err
}

// SaveLeases implements lease.Store.
func (s SiteStore) SaveLeases(ctx context.Context, leases []lease.Lease) error {
	return s.store.write(ctx, "store leases", func(tx *sql.Tx) error {
		put, err := tx.Prepare(`INSERT INTO leases (segment, address, body) VALUES (?, ?, ?)
			ON CONFLICT (segment, address) DO UPDATE SET body = excluded.body`)
		if err != nil {
			return err
		}
		for _, l := range leases {
			body, err := json.Marshal(l)
			if err != nil {
				return errors.Join(err, put.Close())
			}
			if _, err := put.Exec(l.Segment, l.Address.String(), body); err != nil {
				return errors.Join(err, put.Close())
			}
		}
		return put.Close()
	})
}
