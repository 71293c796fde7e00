package credential

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// RecordCertificate keeps the first certificate that a BMC shows, and the one that it shows instead of that. An
// observation of an endpoint that the machine does not have any more is left out.
func RecordCertificate(
	ctx context.Context, q *dbsqlc.Queries, site string, o *fleetv1.BMCObservation, now time.Time,
) error {
	if !convert.SHA256Hex.MatchString(o.GetCertificateSha256()) {
		return nil
	}
	m, err := q.BMCOfMachine(ctx, o.GetMachineId())
	if err != nil {
		return fmt.Errorf("read BMC of machine: %w", err)
	}
	if m.BmcEndpoint == "" || m.BmcEndpoint != o.GetEndpoint() {
		return nil
	}
	err = q.PinBMCCertificate(ctx, dbsqlc.PinBMCCertificateParams{Site: site, Endpoint: m.BmcEndpoint,
		Sha256: o.GetCertificateSha256(), Now: &now})
	if err != nil {
		return fmt.Errorf("record certificate of BMC: %w", err)
	}
	offered := o.GetOfferedCertificateSha256()
	if offered != "" && !convert.SHA256Hex.MatchString(offered) {
		return nil
	}
	_, err = q.OfferBMCCertificate(ctx, dbsqlc.OfferBMCCertificateParams{Site: site, Endpoint: m.BmcEndpoint,
		OfferedSha256: offered, Now: now})
	return pgtx.Wrap(err, "record new certificate of BMC")
}

// BMCCertificateFilter narrows a list. An empty MachineID means every BMC.
type BMCCertificateFilter struct {
	Changed                  bool
	MachineID                string
	AfterSite, AfterEndpoint string
	Limit                    int32
}

// ListBMCCertificates reads the certificates of BMCs by site and endpoint.
func (s *Store) ListBMCCertificates(
	ctx context.Context, f BMCCertificateFilter,
) ([]*baremetalv1.BMCCertificate, error) {
	p := dbsqlc.ListBMCCertificatesParams{Changed: f.Changed, AfterSite: f.AfterSite, AfterEndpoint: f.AfterEndpoint,
		PageSize: f.Limit}
	if f.MachineID != "" {
		m, err := bmcOf(ctx, s.db.Q, f.MachineID)
		if err != nil {
			return nil, err
		}
		if m.BmcEndpoint == "" {
			return nil, nil
		}
		p.Site, p.Endpoint = m.Site, m.BmcEndpoint
	}
	rows, err := s.db.Lists(ctx).ListBMCCertificates(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list certificates of BMCs: %w", err)
	}
	out := make([]*baremetalv1.BMCCertificate, 0, len(rows))
	for _, r := range rows {
		c := bmcCertificate(r.BmcCertificate)
		c.MachineIds = r.MachineIds
		out = append(out, c)
	}
	return out, nil
}

func bmcOf(ctx context.Context, q *dbsqlc.Queries, machineID string) (dbsqlc.BMCOfMachineRow, error) {
	m, err := q.BMCOfMachine(ctx, machineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, convert.MachineNotFound(machineID)
	}
	return m, pgtx.Wrap(err, "read BMC of machine")
}

// SiteOfMachine reads where a machine is; empty for one that is not there or was deleted.
func (s *Store) SiteOfMachine(ctx context.Context, machineID string) (string, error) {
	m, err := s.db.Q.BMCOfMachine(ctx, machineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return m.Site, pgtx.Wrap(err, "read site of machine")
}

func bmcCertificate(r dbsqlc.BmcCertificate) *baremetalv1.BMCCertificate {
	return &baremetalv1.BMCCertificate{
		Site: r.Site, Endpoint: r.Endpoint, Sha256: r.Sha256, OfferedSha256: r.OfferedSha256,
		OfferedAt: convert.TimestampPtr(r.OfferedAt),
		PinnedAt:  convert.TimestampPtr(r.PinnedAt), TrustedBy: r.TrustedBy,
	}
}

// TrustBMCCertificate makes the certificate that a machine's BMC shows now the trusted one, and notifies the site.
func (s *Store) TrustBMCCertificate(
	ctx context.Context, machineID, sum, actor, comment string, now time.Time,
) (*baremetalv1.BMCCertificate, error) {
	var out *baremetalv1.BMCCertificate
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := bmcOf(ctx, q, machineID)
		if err != nil {
			return err
		}
		row, err := q.LockBMCCertificate(ctx, dbsqlc.LockBMCCertificateParams{Site: m.Site, Endpoint: m.BmcEndpoint})
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("lock certificate of BMC: %w", err)
		}
		c := credential.Certificate{Trusted: row.Sha256, Offered: row.OfferedSha256}
		if changes, err := c.Trust(machineID, sum); err != nil || !changes {
			out = bmcCertificate(row)
			return err
		}
		row, err = q.TrustBMCCertificate(ctx, dbsqlc.TrustBMCCertificateParams{Site: m.Site, Endpoint: m.BmcEndpoint,
			TrustedBy: actor, Now: &now})
		if err != nil {
			return fmt.Errorf("trust certificate of BMC: %w", err)
		}
		if err := q.TouchSite(ctx, m.Site); err != nil {
			return fmt.Errorf("notify the site: %w", err)
		}
		out = bmcCertificate(row)
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "TRUST_BMC_CERTIFICATE", Target: machineID, Comment: comment,
			Data: map[string]string{"endpoint": m.BmcEndpoint, "sha256": sum},
		}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("trust certificate of BMC: %w", err)
	}
	return out, nil
}

// UnparkBMC has a machine's BMC asked again that has refused its credentials, and notifies the site.
func (s *Store) UnparkBMC(
	ctx context.Context, machineID, actor, comment string, now time.Time,
) (*baremetalv1.UnparkBMCResponse, error) {
	out := &baremetalv1.UnparkBMCResponse{}
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := bmcOf(ctx, q, machineID)
		if err != nil {
			return err
		}
		if err := credential.MayAskAgain(machineID,
			credential.Named{Ref: m.CredentialsRef, Endpoint: m.BmcEndpoint}); err != nil {
			return err
		}
		at, err := q.UnparkBMC(ctx, dbsqlc.UnparkBMCParams{Site: m.Site, Endpoint: m.BmcEndpoint})
		if err != nil {
			return fmt.Errorf("store when: %w", err)
		}
		if err := q.TouchSite(ctx, m.Site); err != nil {
			return fmt.Errorf("notify the site: %w", err)
		}
		out.Endpoint, out.UnparkedAt = m.BmcEndpoint, convert.Timestamp(at)
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "UNPARK_BMC", Target: machineID, Comment: comment,
			Data: map[string]string{"endpoint": m.BmcEndpoint},
		}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("unpark BMC: %w", err)
	}
	return out, nil
}
