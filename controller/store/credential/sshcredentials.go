package credential

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

func sealedSSH(r dbsqlc.SshCredential) SealedCredentials {
	return SealedCredentials{Ref: r.CredentialsRef, Sealed: r.Sealed, Version: r.Version, UpdatedAt: r.UpdatedAt}
}

// SetSSHCredentials stores sealed credentials under a new version.
func (s *Store) SetSSHCredentials(
	ctx context.Context, ref string, sealed []byte, actor string, now time.Time, opts ...pgtx.WriteOption,
) (SealedCredentials, error) {
	var row dbsqlc.SshCredential
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if row, err = q.PutSSHCredentials(ctx, dbsqlc.PutSSHCredentialsParams{CredentialsRef: ref, Sealed: sealed,
			Now: now}); err != nil {
			return fmt.Errorf("store SSH credentials: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Replacing("SSH credentials "+ref, row.Version); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "SET_SSH_CREDENTIALS", Target: ref, Data: map[string]string{"version": fmt.Sprint(row.Version)},
		}, now)
	})
	if err != nil {
		return SealedCredentials{}, fmt.Errorf("set SSH credentials: %w", err)
	}
	return sealedSSH(row), nil
}

// ListSSHCredentials reads sealed credentials by name.
func (s *Store) ListSSHCredentials(ctx context.Context, afterRef string, limit int32) ([]SealedCredentials, error) {
	rows, err := s.db.Lists(ctx).ListSSHCredentials(ctx,
		dbsqlc.ListSSHCredentialsParams{AfterRef: afterRef, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list SSH credentials: %w", err)
	}
	out := make([]SealedCredentials, 0, len(rows))
	for _, r := range rows {
		out = append(out, sealedSSH(r))
	}
	return out, nil
}

// DeleteSSHCredentials removes credentials that no machine names.
func (s *Store) DeleteSSHCredentials(
	ctx context.Context, ref, actor string, now time.Time, opts ...pgtx.WriteOption,
) (SealedCredentials, error) {
	var row dbsqlc.SshCredential
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if row, err = q.LockSSHCredentials(ctx, ref); errors.Is(err, pgx.ErrNoRows) {
			return credential.SSH.NotFound(ref)
		}
		if err != nil {
			return fmt.Errorf("lock SSH credentials: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Check("SSH credentials "+ref, pgtx.ResourceExists,
			pgtx.Stored{Exists: true, Version: row.Version}); err != nil {
			return err
		}
		machine, err := q.MachineWithSSHCredentials(ctx, ref)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for machines of the SSH credentials: %w", err)
		}
		if err := credential.SSH.MayRemove(ref, credential.Use{Machine: machine}); err != nil {
			return err
		}
		if err := q.DeleteSSHCredentials(ctx, ref); err != nil {
			return fmt.Errorf("delete SSH credentials: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "DELETE_SSH_CREDENTIALS", Target: ref}, now)
	})
	if err != nil {
		return SealedCredentials{}, fmt.Errorf("delete SSH credentials: %w", err)
	}
	return sealedSSH(row), nil
}

// SSHCredentialsFor reads what an agent needs to log in to a machine. Only a site agent gets it, for a machine of its
// site that names it; the audit log has who got which version.
func (s *Store) SSHCredentialsFor(
	ctx context.Context, agentID, machineID, ref string, now time.Time,
) (SealedCredentials, error) {
	var row dbsqlc.SshCredential
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		r, err := s.request(ctx, q, credential.SSH, agentID, machineID, ref)
		if err != nil {
			return err
		}
		row, err = q.GetSSHCredentials(ctx, ref)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("read SSH credentials: %w", err)
		}
		if err == nil {
			r.Stored = &credential.Settings{}
		}
		if err := r.Refuse(); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: agentID, Verb: "GET_SSH_CREDENTIALS", Target: machineID,
			Data: map[string]string{"credentials_ref": ref, "version": fmt.Sprint(row.Version)},
		}, now)
	})
	if err != nil {
		return SealedCredentials{}, fmt.Errorf("give out SSH credentials: %w", err)
	}
	return sealedSSH(row), nil
}
