package credential

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
)

// SealedCredentials are credentials as they are stored: only who has the key can read them. What comes after UpdatedAt
// is of BMCs alone.
type SealedCredentials struct {
	Ref       string
	Sealed    []byte
	Version   int64
	UpdatedAt time.Time
	// Allowed are the endpoints that they may be sent to.
	Allowed                  bmcaddr.Allowance
	PlainHTTP, UnverifiedTLS bool
	// Adopted is set when an upgrade has filled in the allowance.
	Adopted bool
	// OwnOf is the machine whose own user name and password these are; empty of those that are named.
	OwnOf string
	// Own counts the machines that have their own instead. Open are those with a new one whose fate is open.
	Own  int
	Open []string
	// Refused are machines that name them and whose BMC is not covered; at most maxRefused.
	Refused []string
}

const maxRefused = 20

func sealedCredentials(r dbsqlc.BmcCredential) SealedCredentials {
	return SealedCredentials{
		Ref: r.CredentialsRef, Sealed: r.Sealed, Version: r.Version, UpdatedAt: r.UpdatedAt, Allowed: r.AllowedEndpoints,
		PlainHTTP: r.AllowPlainHttp, UnverifiedTLS: r.AllowUnverifiedTls, Adopted: r.Adopted,
	}
}

// settings are the credentials as far as they decide who receives them.
func (c SealedCredentials) settings() *credential.Settings {
	return &credential.Settings{Ref: c.Ref, Sealed: c.Sealed, Allowed: c.Allowed, PlainHTTP: c.PlainHTTP,
		UnverifiedTLS: c.UnverifiedTLS, Adopted: c.Adopted}
}

// SetCredentials stores sealed credentials under a new version, and notifies the sites whose machines use them.
func (s *Store) SetCredentials(
	ctx context.Context, c credential.Change, actor string, now time.Time, opts ...pgtx.WriteOption,
) (SealedCredentials, error) {
	var out SealedCredentials
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		old, err := q.LockCredentials(ctx, c.Ref)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("lock credentials: %w", err)
		}
		next, err := c.Over(*sealedCredentials(old).settings())
		if err != nil {
			return err
		}
		row, err := q.PutCredentials(ctx, dbsqlc.PutCredentialsParams{CredentialsRef: next.Ref, Sealed: next.Sealed,
			AllowedEndpoints: next.Allowed, AllowPlainHttp: next.PlainHTTP, AllowUnverifiedTls: next.UnverifiedTLS,
			Adopted: next.Adopted, Now: now})
		if err != nil {
			return fmt.Errorf("store credentials: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Replacing("BMC credentials "+c.Ref, row.Version); err != nil {
			return err
		}
		if err := q.TouchSitesOfCredentials(ctx, c.Ref); err != nil {
			return fmt.Errorf("notify the sites: %w", err)
		}
		out = sealedCredentials(row)
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "SET_BMC_CREDENTIALS", Target: c.Ref,
			Data: map[string]string{
				"version": fmt.Sprint(row.Version), "allowed_endpoints": strings.Join(row.AllowedEndpoints, " "),
				"allow_plain_http": fmt.Sprint(row.AllowPlainHttp), "allow_unverified_tls": fmt.Sprint(row.AllowUnverifiedTls),
				"password_changed": fmt.Sprint(c.Sealed != nil),
			}}, now)
	})
	if err != nil {
		return SealedCredentials{}, fmt.Errorf("set credentials: %w", err)
	}
	return out, nil
}

// ListCredentials reads sealed credentials by name, from a name on.
func (s *Store) ListCredentials(ctx context.Context, afterRef string, limit int32) ([]SealedCredentials, error) {
	rows, err := s.db.Lists(ctx).ListCredentials(ctx, dbsqlc.ListCredentialsParams{AfterRef: afterRef, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list credentials: %w", err)
	}
	out := make([]SealedCredentials, 0, len(rows))
	for _, r := range rows {
		c := sealedCredentials(r)
		used, err := s.db.Q.EndpointsOfCredentials(ctx, r.CredentialsRef)
		if err != nil {
			return nil, fmt.Errorf("read BMCs of credentials: %w", err)
		}
		for _, u := range used {
			if c.settings().MayGoTo(u.BmcEndpoint) != nil && len(c.Refused) < maxRefused {
				c.Refused = append(c.Refused, u.MachineID)
			}
		}
		if err := s.countOwn(ctx, &c); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// countOwn reads which machines have passwords of their own instead.
func (s *Store) countOwn(ctx context.Context, c *SealedCredentials) error {
	all, err := s.db.Q.OwnPasswordsOf(ctx, c.Ref)
	if err != nil {
		return fmt.Errorf("read own passwords of machines: %w", err)
	}
	for _, p := range all {
		if p.Own {
			c.Own++
		}
		if p.Open && len(c.Open) < maxRefused {
			c.Open = append(c.Open, p.MachineID)
		}
	}
	return nil
}

// DeleteCredentials removes credentials that no machine names.
func (s *Store) DeleteCredentials(
	ctx context.Context, ref, actor string, now time.Time, opts ...pgtx.WriteOption,
) (SealedCredentials, error) {
	var row dbsqlc.BmcCredential
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if row, err = q.LockCredentials(ctx, ref); errors.Is(err, pgx.ErrNoRows) {
			return credential.BMC.NotFound(ref)
		}
		if err != nil {
			return fmt.Errorf("lock credentials: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Check("BMC credentials "+ref, pgtx.ResourceExists,
			pgtx.Stored{Exists: true, Version: row.Version}); err != nil {
			return err
		}
		machine, err := q.MachineWithCredentials(ctx, ref)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for machines of the credentials: %w", err)
		}
		if err := credential.BMC.MayRemove(ref, credential.Use{Machine: machine}); err != nil {
			return err
		}
		if err := q.DeleteCredentials(ctx, ref); err != nil {
			return fmt.Errorf("delete credentials: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "DELETE_BMC_CREDENTIALS", Target: ref}, now)
	})
	if err != nil {
		return SealedCredentials{}, fmt.Errorf("delete credentials: %w", err)
	}
	return sealedCredentials(row), nil
}

// CredentialsFor reads what an agent needs to speak to the BMC of a machine. Only a site agent gets them, for a machine
// of its site that names them; the audit log has who got which version.
func (s *Store) CredentialsFor(
	ctx context.Context, agentID, machineID, ref string, now time.Time,
) (SealedCredentials, error) {
	var out SealedCredentials
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		r, err := s.request(ctx, q, credential.BMC, agentID, machineID, ref)
		if err != nil {
			return err
		}
		row, err := q.GetCredentials(ctx, ref)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("read credentials: %w", err)
		}
		if err == nil {
			out = sealedCredentials(row)
			r.Stored = out.settings()
		}
		if err := r.Refuse(); err != nil {
			return err
		}
		own, err := ownPassword(ctx, q, machineID, ref)
		if err != nil {
			return err
		}
		out = out.overridden(own, r.Machine.Endpoint)
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: agentID, Verb: "GET_BMC_CREDENTIALS", Target: machineID,
			Data: map[string]string{"credentials_ref": ref, "version": fmt.Sprint(out.Version)},
		}, now)
	})
	if err != nil {
		return SealedCredentials{}, fmt.Errorf("give out credentials: %w", err)
	}
	return out, nil
}

// agentOf reads the agent that asks; it is empty for one that is not known.
func agentOf(ctx context.Context, q *dbsqlc.Queries, agentID string) (credential.Agent, error) {
	a, err := q.GetAgent(ctx, agentID)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return credential.Agent{}, fmt.Errorf("read agent: %w", err)
	}
	return credential.Agent{Role: a.Role, Site: a.Site}, nil
}

// request reads what decides an agent's request, besides the credentials themselves.
func (s *Store) request(
	ctx context.Context, q *dbsqlc.Queries, kind credential.Kind, agentID, machineID, ref string,
) (r credential.Request, err error) {
	r = credential.Request{Kind: kind, MachineID: machineID, Ref: ref}
	if r.By, err = agentOf(ctx, q, agentID); err != nil {
		return r, err
	}
	r.Machine, err = named(ctx, q, kind, machineID, r.By.Site)
	return r, err
}

// named reads the credentials that a machine of a site names; nil where the site has no such machine.
func named(
	ctx context.Context, q *dbsqlc.Queries, kind credential.Kind, machineID, site string,
) (*credential.Named, error) {
	n := &credential.Named{}
	var err error
	switch kind {
	case credential.SSH:
		n.Ref, err = q.SSHCredentialsRefOfMachine(ctx, dbsqlc.SSHCredentialsRefOfMachineParams{MachineID: machineID,
			Site: site})
	case credential.MAAS:
		n.Ref, err = q.MAASRegionRefOfMachine(ctx, dbsqlc.MAASRegionRefOfMachineParams{MachineID: machineID, Site: site})
	default:
		var m dbsqlc.CredentialsRefOfMachineRow
		m, err = q.CredentialsRefOfMachine(ctx, dbsqlc.CredentialsRefOfMachineParams{MachineID: machineID, Site: site})
		n.Ref, n.Endpoint = m.CredentialsRef, m.BmcEndpoint
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read machine: %w", err)
	}
	return n, nil
}

// RoleOfAgent reads what an agent is there for: "host", "site" or "installer"; empty when there is no such agent.
func (s *Store) RoleOfAgent(ctx context.Context, agentID string) (string, error) {
	a, err := s.db.Q.GetAgent(ctx, agentID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read agent: %w", err)
	}
	return a.Role, nil
}
