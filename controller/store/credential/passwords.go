package credential

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
)

// ownShift keeps the versions of a machine's own passwords apart from those of named credentials, which are below it.
// The named ones' version is added, because their choices about TLS hold for the own password, too.
const ownShift = 32

// overridden replaces user name and password by the machine's own, if it has any for these credentials. They go to the
// machine's BMC alone.
func (c SealedCredentials) overridden(own dbsqlc.BmcPassword, endpoint string) SealedCredentials {
	if own.Sealed == nil {
		return c
	}
	c.OwnOf, c.Sealed, c.Version = own.MachineID, own.Sealed, own.Version<<ownShift+c.Version
	c.Allowed = only(endpoint)
	return c
}

// only is the allowance of one BMC.
func only(endpoint string) bmcaddr.Allowance {
	a, err := bmcaddr.Parse(endpoint)
	switch {
	case err != nil:
		return nil
	case a.Port == "":
		return bmcaddr.Allowance{a.Host}
	}
	return bmcaddr.Allowance{net.JoinHostPort(a.Host, a.Port)}
}

func ownPassword(ctx context.Context, q *dbsqlc.Queries, machineID, ref string) (dbsqlc.BmcPassword, error) {
	own, err := q.GetBMCPassword(ctx, dbsqlc.GetBMCPasswordParams{MachineID: machineID, CredentialsRef: ref})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return own, fmt.Errorf("read the machine's own password: %w", err)
	}
	return own, nil
}

// NewPassword is a password that is kept before the BMC hears of it.
type NewPassword struct {
	MachineID, Ref string
	// Current is what the BMC takes as far as is known.
	Current SealedCredentials
	// Sealed is the new one; nil where the command's password is in force already and is the current one.
	Sealed  []byte
	Version int64
	// Tried: an earlier command may have given it to the BMC.
	Tried bool
}

// MakePassword keeps a new password for the machine of a granted command. One that is pending stays, because the BMC
// may take it by now. seal seals a new one, for a machine that has current.
func (s *Store) MakePassword(
	ctx context.Context, agentID, commandID string, now time.Time,
	seal func(machineID string, current SealedCredentials) ([]byte, error),
) (out NewPassword, err error) {
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		c, spec, err := passwordCommand(ctx, q, commandID)
		if err != nil {
			return err
		}
		change, current, err := passwordChange(ctx, q, agentID, c, spec)
		if err != nil {
			return err
		}
		if err := change.Refuse(); err != nil {
			return err
		}
		ref, base := current.Ref, current.Version
		out = NewPassword{MachineID: c.TargetID, Ref: ref}
		own, err := q.LockBMCPassword(ctx, dbsqlc.LockBMCPasswordParams{MachineID: c.TargetID, CredentialsRef: ref})
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("lock the machine's own password: %w", err)
		}
		out.Current = current.overridden(own, spec.GetBmcEndpoint())
		if own.SettledCommand == commandID {
			return nil
		}
		out.Tried = own.Pending != nil && own.PendingCommand != commandID
		sealed := own.Pending
		if sealed == nil {
			if sealed, err = seal(c.TargetID, out.Current); err != nil {
				return err
			}
		}
		own, err = q.PendBMCPassword(ctx, dbsqlc.PendBMCPasswordParams{MachineID: c.TargetID, CredentialsRef: ref,
			Pending: sealed, CommandID: commandID, Now: now})
		if err != nil {
			return fmt.Errorf("store the new password: %w", err)
		}
		out.Sealed, out.Version = own.Pending, own.PendingVersion<<ownShift+base
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: agentID, Verb: "MAKE_BMC_PASSWORD", Target: c.TargetID, Operation: c.OperationID,
			Data: map[string]string{"credentials_ref": ref, "version": fmt.Sprint(out.Version),
				"tried_before": fmt.Sprint(out.Tried)},
		}, now)
	})
	if err != nil {
		return NewPassword{}, fmt.Errorf("make a BMC password: %w", err)
	}
	return out, nil
}

// passwordChange reads what decides whether a command gets a new password, and the named credentials of its machine.
func passwordChange(
	ctx context.Context, q *dbsqlc.Queries, agentID string, c dbsqlc.GetCommandRow, spec *fleetv1.CommandSpec,
) (p credential.PasswordChange, current SealedCredentials, err error) {
	p = credential.PasswordChange{AgentID: agentID, MachineID: c.TargetID, Command: commandOf(c, spec),
		Ordered: credential.Named{Ref: spec.GetBmcCredentialsRef(), Endpoint: spec.GetBmcEndpoint()}}
	if p.By, err = agentOf(ctx, q, agentID); err != nil {
		return p, current, err
	}
	if p.Machine, err = named(ctx, q, credential.BMC, c.TargetID, p.By.Site); err != nil || p.Machine == nil {
		return p, current, err
	}
	row, err := q.GetCredentials(ctx, p.Machine.Ref)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, current, nil
	}
	if err != nil {
		return p, current, fmt.Errorf("read credentials: %w", err)
	}
	current = sealedCredentials(row)
	p.Stored = current.settings()
	p.Neighbours, err = Neighbours(ctx, q, c.TargetID, current.Ref, p.Machine.Endpoint)
	return p, current, err
}

// Neighbours returns the other machines with the same BMC credentials that may name the BMC at the endpoint, by one
// statement.
func Neighbours(
	ctx context.Context, q *dbsqlc.Queries, machineID, ref, endpoint string,
) (out []start.Neighbour, err error) {
	at, err := bmcaddr.Parse(endpoint)
	if err != nil {
		at.Host = endpoint // which no machine may have
	}
	rows, err := q.NeighboursAtBMC(ctx, dbsqlc.NeighboursAtBMCParams{CredentialsRef: ref, MachineID: machineID,
		Host: at.Host})
	for _, r := range rows {
		out = append(out, start.Neighbour{MachineID: r.MachineID, BMCEndpoint: r.BmcEndpoint})
	}
	return out, pgtx.Wrap(err, "look for other machines at the BMC")
}

// passwordCommand reads a command, which is empty where there is none.
func passwordCommand(
	ctx context.Context, q *dbsqlc.Queries, commandID string,
) (dbsqlc.GetCommandRow, *fleetv1.CommandSpec, error) {
	c, err := q.GetCommand(ctx, commandID)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return c, nil, fmt.Errorf("read command: %w", err)
	}
	spec := &fleetv1.CommandSpec{}
	if err := proto.Unmarshal(c.Spec, spec); err != nil {
		return c, nil, fmt.Errorf("parse stored command: %w", err)
	}
	return c, spec, nil
}

// commandOf is a command that may change a password.
func commandOf(c dbsqlc.GetCommandRow, spec *fleetv1.CommandSpec) credential.Command {
	return credential.Command{ID: c.CommandID, ExecutorID: c.ExecutorID, State: operation.CommandState(c.State),
		Needs: spec.GetBmcPassword() != nil}
}

// SettlePassword takes an agent's word of which password the BMC takes, and notifies the site. accepted makes the new
// one the machine's own; else it is forgotten, because the BMC has refused it.
func (s *Store) SettlePassword(
	ctx context.Context, agentID, commandID string, version int64, accepted bool, now time.Time,
) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		c, spec, err := passwordCommand(ctx, q, commandID)
		if err != nil {
			return err
		}
		if err := commandOf(c, spec).Of(agentID); err != nil {
			return err
		}
		e := history.AuditEntry{Actor: agentID, Target: c.TargetID, Operation: c.OperationID,
			Data: map[string]string{"credentials_ref": spec.GetBmcCredentialsRef(), "endpoint": spec.GetBmcEndpoint(),
				"version": fmt.Sprint(version)}}
		if !accepted {
			e.Verb = "FORGET_BMC_PASSWORD"
			n, err := q.ForgetPendingBMCPassword(ctx, dbsqlc.ForgetPendingBMCPasswordParams{MachineID: c.TargetID,
				CommandID: commandID, Version: version >> ownShift, Now: now})
			if err != nil || n == 0 {
				return err
			}
			return history.Audit(ctx, q, e, now)
		}
		e.Verb = "CHANGE_BMC_PASSWORD"
		changed, err := acceptPassword(ctx, q, c, spec, version>>ownShift, now)
		if err != nil || !changed {
			return err
		}
		return history.Audit(ctx, q, e, now)
	})
	if err != nil {
		return fmt.Errorf("settle a BMC password: %w", err)
	}
	return nil
}

// acceptPassword reports whether something has changed: a repeat changes nothing.
func acceptPassword(
	ctx context.Context, q *dbsqlc.Queries, c dbsqlc.GetCommandRow, spec *fleetv1.CommandSpec, version int64,
	now time.Time,
) (changed bool, err error) {
	own, err := q.AcceptBMCPassword(ctx, dbsqlc.AcceptBMCPasswordParams{MachineID: c.TargetID, CommandID: c.CommandID,
		Version: version, Now: now})
	if errors.Is(err, pgx.ErrNoRows) {
		if own, err = ownPassword(ctx, q, c.TargetID, spec.GetBmcCredentialsRef()); err != nil {
			return false, err
		}
		return false, credential.Settled(own.SettledCommand, c.CommandID)
	}
	if err != nil {
		return false, fmt.Errorf("make it the machine's password: %w", err)
	}
	err = q.DropOtherBMCPasswords(ctx, dbsqlc.DropOtherBMCPasswordsParams{MachineID: c.TargetID,
		CredentialsRef: own.CredentialsRef})
	if err != nil {
		return false, fmt.Errorf("drop the machine's other passwords: %w", err)
	}
	m, err := q.BMCOfMachine(ctx, c.TargetID)
	if errors.Is(err, pgx.ErrNoRows) {
		return true, nil
	}
	if err == nil {
		err = q.TouchSite(ctx, m.Site)
	}
	if err != nil {
		return false, fmt.Errorf("notify the site: %w", err)
	}
	return true, nil
}
