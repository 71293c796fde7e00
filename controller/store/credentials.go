package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/internal/failure"
)

// SealedCredentials are the credentials of BMCs as they are stored: only who has the key can read them.
type SealedCredentials struct {
	Ref       string
	Sealed    []byte
	Version   int64
	UpdatedAt time.Time
}

func sealedCredentials(r dbsqlc.BmcCredential) SealedCredentials {
	return SealedCredentials{Ref: r.CredentialsRef, Sealed: r.Sealed, Version: r.Version, UpdatedAt: r.UpdatedAt}
}

func credentialsNotFound(ref string) error {
	return failure.NotFound("CREDENTIALS_NOT_FOUND", "there are no BMC credentials %q", ref).WithField("credentials_ref", "unknown")
}

// SetCredentials stores sealed credentials under a new version, and tells the sites whose machines use them.
func (s *Store) SetCredentials(ctx context.Context, ref string, sealed []byte, actor string, now time.Time, opts ...WriteOption) (SealedCredentials, error) {
	var row dbsqlc.BmcCredential
	err := s.inTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if row, err = q.PutCredentials(ctx, dbsqlc.PutCredentialsParams{CredentialsRef: ref, Sealed: sealed, Now: now}); err != nil {
			return fmt.Errorf("store credentials: %w", err)
		}
		if err := conditionsOf(opts).replacing("BMC credentials "+ref, row.Version); err != nil {
			return err
		}
		if err := q.TouchSitesOfCredentials(ctx, ref); err != nil {
			return fmt.Errorf("tell the sites: %w", err)
		}
		return audit(ctx, q, auditEntry{
			actor: actor, verb: "SET_BMC_CREDENTIALS", target: ref, data: map[string]string{"version": fmt.Sprint(row.Version)},
		}, now)
	})
	if err != nil {
		return SealedCredentials{}, fmt.Errorf("set credentials: %w", err)
	}
	return sealedCredentials(row), nil
}

// ListCredentials reads sealed credentials by name, from a name on.
func (s *Store) ListCredentials(ctx context.Context, afterRef string, limit int32) ([]SealedCredentials, error) {
	rows, err := s.lists(ctx).ListCredentials(ctx, dbsqlc.ListCredentialsParams{AfterRef: afterRef, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list credentials: %w", err)
	}
	out := make([]SealedCredentials, 0, len(rows))
	for _, r := range rows {
		out = append(out, sealedCredentials(r))
	}
	return out, nil
}

// DeleteCredentials removes credentials that no machine names.
func (s *Store) DeleteCredentials(ctx context.Context, ref, actor string, now time.Time, opts ...WriteOption) (SealedCredentials, error) {
	var row dbsqlc.BmcCredential
	err := s.inTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if row, err = q.LockCredentials(ctx, ref); errors.Is(err, pgx.ErrNoRows) {
			return credentialsNotFound(ref)
		}
		if err != nil {
			return fmt.Errorf("lock credentials: %w", err)
		}
		if err := conditionsOf(opts).check("BMC credentials "+ref, resourceExists, stored{true, row.Version}); err != nil {
			return err
		}
		machine, err := q.MachineWithCredentials(ctx, ref)
		if err == nil {
			return failure.Precondition("CREDENTIALS_IN_USE", "machine %s names the credentials %s", machine, ref).WithMeta("machine_id", machine)
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for machines of the credentials: %w", err)
		}
		if err := q.DeleteCredentials(ctx, ref); err != nil {
			return fmt.Errorf("delete credentials: %w", err)
		}
		return audit(ctx, q, auditEntry{actor: actor, verb: "DELETE_BMC_CREDENTIALS", target: ref}, now)
	})
	if err != nil {
		return SealedCredentials{}, fmt.Errorf("delete credentials: %w", err)
	}
	return sealedCredentials(row), nil
}

// CredentialsFor reads what an agent needs to speak to the BMC of a machine. Only a site agent gets them, for a machine
// of its site that names them; the audit log has who got which version.
func (s *Store) CredentialsFor(ctx context.Context, agentID, machineID, ref string, now time.Time) (SealedCredentials, error) {
	var row dbsqlc.BmcCredential
	err := s.inTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		site, err := siteOfAgent(ctx, q, agentID)
		if err != nil {
			return err
		}
		named, err := q.CredentialsRefOfMachine(ctx, dbsqlc.CredentialsRefOfMachineParams{MachineID: machineID, Site: site})
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("MACHINE_NOT_FOUND", "site %s has no machine %q", site, machineID).WithField("machine_id", "not of this site")
		}
		if err != nil {
			return fmt.Errorf("read machine: %w", err)
		}
		if named == "" || named != ref {
			return failure.NotFound("CREDENTIALS_NOT_FOUND", "machine %s does not name the credentials %q", machineID, ref).
				WithField("credentials_ref", "not those of the machine")
		}
		if row, err = q.GetCredentials(ctx, ref); errors.Is(err, pgx.ErrNoRows) {
			return credentialsNotFound(ref)
		}
		if err != nil {
			return fmt.Errorf("read credentials: %w", err)
		}
		return audit(ctx, q, auditEntry{
			actor: agentID, verb: "GET_BMC_CREDENTIALS", target: machineID,
			data: map[string]string{"credentials_ref": ref, "version": fmt.Sprint(row.Version)},
		}, now)
	})
	if err != nil {
		return SealedCredentials{}, fmt.Errorf("give out credentials: %w", err)
	}
	return sealedCredentials(row), nil
}

func siteOfAgent(ctx context.Context, q *dbsqlc.Queries, agentID string) (string, error) {
	a, err := q.GetAgent(ctx, agentID)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("read agent: %w", err)
	}
	if err != nil || a.Role != "site" || a.Site == "" {
		return "", failure.Denied("SCOPE_TOO_SMALL", "only site agents get BMC credentials")
	}
	return a.Site, nil
}

// RoleOfAgent reads what an agent is there for: "host", "site" or "installer"; empty when there is no such agent.
func (s *Store) RoleOfAgent(ctx context.Context, agentID string) (string, error) {
	a, err := s.q.GetAgent(ctx, agentID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read agent: %w", err)
	}
	return a.Role, nil
}
