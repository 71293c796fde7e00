package credential

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
)

// Discovery is an admin's order to a site's agent to look for BMCs.
type Discovery struct {
	Site, AgentID, Ref, Actor string
	// Networks are as the admin has given them; Addresses are theirs.
	Networks  []string
	Addresses []netip.Addr
	Port      int32
}

// CredentialsForDiscovery reads what a site's agent logs in to unknown BMCs with, and writes into the audit log who
// looks for them. Where the credentials are for none of the addresses they come without their secret.
func (s *Store) CredentialsForDiscovery(
	ctx context.Context, d Discovery, now time.Time,
) (SealedCredentials, error) {
	var out SealedCredentials
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		row, err := q.GetCredentials(ctx, d.Ref)
		if errors.Is(err, pgx.ErrNoRows) {
			return credential.BMC.NotFound(d.Ref)
		}
		if err != nil {
			return fmt.Errorf("read credentials: %w", err)
		}
		if out = sealedCredentials(row); !d.coveredBy(out.Allowed) {
			out.Sealed = nil
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: d.Actor, Verb: "DISCOVER_BMCS", Target: d.Site,
			Data: map[string]string{
				"networks": strings.Join(d.Networks, " "), "port": fmt.Sprint(d.Port), "credentials_ref": d.Ref,
				"version": fmt.Sprint(row.Version), "agent_id": d.AgentID, "credentials_sent": fmt.Sprint(out.Sealed != nil),
			}}, now)
	})
	if err != nil {
		return SealedCredentials{}, fmt.Errorf("give out credentials for a discovery: %w", err)
	}
	return out, nil
}

// coveredBy reports whether credentials are for at least one of the addresses.
func (d Discovery) coveredBy(allowed bmcaddr.Allowance) bool {
	port := ""
	if d.Port != 0 {
		port = fmt.Sprint(d.Port)
	}
	return slices.ContainsFunc(d.Addresses, func(a netip.Addr) bool {
		return allowed.Covers(bmcaddr.Address{Host: a.String(), Port: port})
	})
}
