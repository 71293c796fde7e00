package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// SignOnProvider reads what a provider last said of itself and of its keys; nothing where it is not known.
func (s *Store) SignOnProvider(
	ctx context.Context,
	issuer string,
) (document, keys []byte, fetched time.Time, err error) {
	row, err := s.db.Q.SignOnProvider(ctx, issuer)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, time.Time{}, nil
	}
	if err != nil {
		return nil, nil, time.Time{}, fmt.Errorf("read provider of sign-ons: %w", err)
	}
	return row.Document, row.Keys, row.FetchedAt, nil
}

// PutSignOnProvider keeps what a provider said.
func (s *Store) PutSignOnProvider(ctx context.Context, issuer string, document, keys []byte, at time.Time) error {
	err := s.db.Q.PutSignOnProvider(ctx, dbsqlc.PutSignOnProviderParams{Issuer: issuer, Document: document, Keys: keys,
		FetchedAt: at})
	if err != nil {
		return fmt.Errorf("keep provider of sign-ons: %w", err)
	}
	return nil
}
