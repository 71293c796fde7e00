package credential

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
	"github.com/ingot-metal/ingot/internal/failure"
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
		c, spec, err := passwordCommand(ctx, q, agentID, commandID)
		if err != nil {
			return err
		}
		if c.State != string(operation.Granted) {
			return failure.Precondition("GRANT_REFUSED", "the command is %s, not granted", c.State)
		}
		current, err := currentFor(ctx, q, agentID, c.TargetID, spec)
		if err != nil {
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

// currentFor is the named credentials of the command's machine, if they may be used and the machine is still as in the
// command.
func currentFor(
	ctx context.Context, q *dbsqlc.Queries, agentID, machineID string, spec *fleetv1.CommandSpec,
) (SealedCredentials, error) {
	site, err := siteOfAgent(ctx, q, agentID)
	if err != nil {
		return SealedCredentials{}, err
	}
	m, err := q.CredentialsRefOfMachine(ctx, dbsqlc.CredentialsRefOfMachineParams{MachineID: machineID, Site: site})
	if err != nil {
		return SealedCredentials{}, fmt.Errorf("read machine: %w", err)
	}
	if m.CredentialsRef != spec.GetBmcCredentialsRef() || m.BmcEndpoint != spec.GetBmcEndpoint() {
		return SealedCredentials{}, failure.Precondition("EXECUTION_FAILED",
			"the machine's BMC or its credentials have changed since; the BMC was not told. Start again")
	}
	row, err := q.GetCredentials(ctx, m.CredentialsRef)
	if errors.Is(err, pgx.ErrNoRows) {
		return SealedCredentials{}, credentialsNotFound(m.CredentialsRef)
	}
	if err != nil {
		return SealedCredentials{}, fmt.Errorf("read credentials: %w", err)
	}
	c := sealedCredentials(row)
	if err := mayGoTo(c, m.BmcEndpoint); err != nil {
		return SealedCredentials{}, err
	}
	others, err := Neighbours(ctx, q, machineID, c.Ref, m.BmcEndpoint)
	if err != nil {
		return c, err
	}
	return c, start.PasswordIsOwn(start.Machine{Facts: fleet.Facts{MachineID: machineID},
		Spec: &baremetalv1.MachineSpec{BmcEndpoint: m.BmcEndpoint, BmcCredentialsRef: c.Ref}}, others)
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

// passwordCommand reads a command that changes a password and was given to this agent.
func passwordCommand(
	ctx context.Context, q *dbsqlc.Queries, agentID, commandID string,
) (dbsqlc.GetCommandRow, *fleetv1.CommandSpec, error) {
	c, err := q.GetCommand(ctx, commandID)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return c, nil, fmt.Errorf("read command: %w", err)
	}
	spec := &fleetv1.CommandSpec{}
	if err := proto.Unmarshal(c.Spec, spec); err != nil {
		return c, nil, fmt.Errorf("parse stored command: %w", err)
	}
	if c.ExecutorID != agentID || spec.GetBmcPassword() == nil {
		return c, nil, failure.NotFound("COMMAND_NOT_FOUND", "the command was not given to this agent")
	}
	return c, spec, nil
}

// SettlePassword takes an agent's word of which password the BMC takes, and notifies the site. accepted makes the new
// one the machine's own; else it is forgotten, because the BMC has refused it.
func (s *Store) SettlePassword(
	ctx context.Context, agentID, commandID string, version int64, accepted bool, now time.Time,
) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		c, spec, err := passwordCommand(ctx, q, agentID, commandID)
		if err != nil {
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
		own, err = ownPassword(ctx, q, c.TargetID, spec.GetBmcCredentialsRef())
		if err == nil && own.SettledCommand != c.CommandID {
			err = failure.Precondition("GRANT_REFUSED", "this password is not the one that was made for the command")
		}
		return false, err
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
