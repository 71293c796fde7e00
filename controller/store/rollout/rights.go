package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/membership"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	accessstore "github.com/ingot-metal/ingot/controller/store/access"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
)

// creatorOf returns the caller of a creation, as it is stored.
func creatorOf(by access.Caller) ([]byte, error) {
	raw, err := json.Marshal(by.Creator())
	if err != nil {
		return nil, fmt.Errorf("serialize creator: %w", err)
	}
	return raw, nil
}

// mayWork refuses a machine that the rights of the rollout's creator do not cover any more. A rollout of an older
// version has no creator, and is not judged.
func (s *Store) mayWork(
	ctx context.Context, q *dbsqlc.Queries, r dbsqlc.Rollout, m dbsqlc.Machine, now time.Time,
) error {
	c := access.Creator{}
	if err := json.Unmarshal(r.RightsFrom, &c); err != nil {
		return fmt.Errorf("parse stored creator: %w", err)
	}
	facts, known, err := s.creatorFacts(ctx, q, c, now)
	if err != nil || !known {
		return err
	}
	fields, err := machinestore.StoredFields(m)
	if err != nil {
		return err
	}
	rights, err := membership.RolesOf(c.Rights(facts, now))
	if err != nil {
		return err
	}
	return rollout.MayWork(r.CreatedBy, rights, fields)
}

// creatorFacts reads what the rights of a creator follow from. It reports whether there is a creator whose rights can
// be known.
func (s *Store) creatorFacts(
	ctx context.Context, q *dbsqlc.Queries, c access.Creator, now time.Time,
) (f access.CreatorFacts, known bool, err error) {
	if c.TokenID+c.Identity == "" {
		f.File, known = s.machines.FileTokens()
		return f, known && c.FileToken != "", nil
	}
	if f.Bindings, err = accessstore.RoleBindings(ctx, q, now); err != nil {
		return f, false, err
	}
	identity := c.Identity
	if c.TokenID != "" {
		if f.Token, err = unrevoked(ctx, q, c.TokenID); err != nil || f.Token == nil {
			return f, err == nil, err
		}
		identity = f.Token.Owner
	}
	person, err := q.PersonOf(ctx, identity)
	switch {
	case err == nil: // with the groups of the newest sign-on
		f.Person = &access.Person{Subject: person.Subject, Groups: person.Groups}
	case !errors.Is(err, pgx.ErrNoRows):
		return f, false, fmt.Errorf("read the person behind a rollout: %w", err)
	case c.Identity != "":
		f.Person = &access.Person{Subject: c.Subject, Groups: slices.Clone(c.Groups)}
	}
	return f, true, nil
}

// unrevoked returns a token of the database; nil where it was revoked.
func unrevoked(ctx context.Context, q *dbsqlc.Queries, id string) (*access.StoredToken, error) {
	row, err := q.UnrevokedAPIToken(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the token of a rollout's creator: %w", err)
	}
	scope, err := access.ParseScope(row.Scope)
	if err != nil {
		return nil, fmt.Errorf("token %s in the database is malformed: %w", id, err)
	}
	return &access.StoredToken{Scope: scope, Owner: row.CreatedByIdentity, Selection: row.Selection}, nil
}
