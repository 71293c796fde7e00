package credential

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
	"github.com/ingot-metal/ingot/internal/failure"
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

func credentialsNotFound(ref string) error {
	return failure.NotFound("CREDENTIALS_NOT_FOUND", "there are no BMC credentials %q", ref).WithField("credentials_ref",
		"unknown")
}

// CredentialsChange is an admin's change of the credentials of BMCs.
type CredentialsChange struct {
	Ref string
	// Sealed is nil to keep those that are there.
	Sealed []byte
	// Allowed are their endpoints; empty keeps the allowance that is there.
	Allowed bmcaddr.Allowance
	// PlainHTTP and UnverifiedTLS are nil to keep the present values.
	PlainHTTP, UnverifiedTLS *bool
}

// over returns the row that the change makes of another one, which is empty for new credentials.
func (c CredentialsChange) over(old dbsqlc.BmcCredential) (dbsqlc.PutCredentialsParams, error) {
	p := dbsqlc.PutCredentialsParams{
		CredentialsRef: c.Ref, Sealed: old.Sealed, AllowedEndpoints: old.AllowedEndpoints, AllowPlainHttp: old.AllowPlainHttp,
		AllowUnverifiedTls: old.AllowUnverifiedTls, Adopted: old.Adopted,
	}
	if c.Sealed != nil {
		p.Sealed = c.Sealed
	}
	if len(c.Allowed) > 0 {
		p.AllowedEndpoints, p.Adopted = c.Allowed, false
	}
	if c.PlainHTTP != nil {
		p.AllowPlainHttp = *c.PlainHTTP
	}
	if c.UnverifiedTLS != nil {
		p.AllowUnverifiedTls = *c.UnverifiedTLS
	}
	switch {
	case p.Sealed == nil:
		return p, credentialsNotFound(c.Ref)
	case len(p.AllowedEndpoints) == 0:
		return p, failure.Invalid("INVALID_FIELD", "allowed_endpoints: required: say which BMCs the credentials are for").
			WithField("allowed_endpoints", "required")
	}
	return p, nil
}

// SetCredentials stores sealed credentials under a new version, and notifies the sites whose machines use them.
func (s *Store) SetCredentials(
	ctx context.Context, c CredentialsChange, actor string, now time.Time, opts ...pgtx.WriteOption,
) (SealedCredentials, error) {
	var out SealedCredentials
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		old, err := q.LockCredentials(ctx, c.Ref)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("lock credentials: %w", err)
		}
		p, err := c.over(old)
		if err != nil {
			return err
		}
		p.Now = now
		row, err := q.PutCredentials(ctx, p)
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
			if mayGoTo(c, u.BmcEndpoint) != nil && len(c.Refused) < maxRefused {
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

// mayGoTo refuses the endpoint of a BMC that the credentials were not made for.
func mayGoTo(c SealedCredentials, endpoint string) error {
	a, err := bmcaddr.Parse(endpoint)
	if err != nil || !c.Allowed.Covers(a) {
		return failure.Precondition("BMC_ENDPOINT_NOT_ALLOWED",
			"the credentials %s are not for the BMC %s; an admin allows it: "+
				"ingot bmc credentials allow", c.Ref, endpoint)
	}
	if a.Plain() && !c.PlainHTTP {
		return failure.Precondition("BMC_PLAIN_HTTP_NOT_ALLOWED",
			"the credentials %s may not be sent to %s, which is without TLS", c.Ref, endpoint)
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
			return credentialsNotFound(ref)
		}
		if err != nil {
			return fmt.Errorf("lock credentials: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Check("BMC credentials "+ref, pgtx.ResourceExists,
			pgtx.Stored{Exists: true, Version: row.Version}); err != nil {
			return err
		}
		machine, err := q.MachineWithCredentials(ctx, ref)
		if err == nil {
			return failure.Precondition("CREDENTIALS_IN_USE", "machine %s names the credentials %s", machine,
				ref).WithMeta("machine_id", machine)
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for machines of the credentials: %w", err)
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
		site, err := siteOfAgent(ctx, q, agentID)
		if err != nil {
			return err
		}
		m, err := q.CredentialsRefOfMachine(ctx, dbsqlc.CredentialsRefOfMachineParams{MachineID: machineID, Site: site})
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("MACHINE_NOT_FOUND", "site %s has no machine %q", site, machineID).WithField("machine_id",
				"not of this site")
		}
		if err != nil {
			return fmt.Errorf("read machine: %w", err)
		}
		if m.CredentialsRef == "" || m.CredentialsRef != ref {
			return failure.NotFound("CREDENTIALS_NOT_FOUND", "machine %s does not name the credentials %q", machineID, ref).
				WithField("credentials_ref", "not those of the machine")
		}
		row, err := q.GetCredentials(ctx, ref)
		if errors.Is(err, pgx.ErrNoRows) {
			return credentialsNotFound(ref)
		}
		if err != nil {
			return fmt.Errorf("read credentials: %w", err)
		}
		out = sealedCredentials(row)
		if err := mayGoTo(out, m.BmcEndpoint); err != nil {
			return err
		}
		own, err := ownPassword(ctx, q, machineID, ref)
		if err != nil {
			return err
		}
		out = out.overridden(own, m.BmcEndpoint)
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
	a, err := s.db.Q.GetAgent(ctx, agentID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read agent: %w", err)
	}
	return a.Role, nil
}
