package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/startfacts"
	"github.com/ingot-metal/ingot/internal/ids"
)

// BootTokenBytes: 128 random bits name what a machine boots.
const BootTokenBytes = 16

// changesBoot reports whether a step changes what the machine boots from the network.
func changesBoot(steps []dbsqlc.OperationStep) bool {
	return slices.ContainsFunc(steps, func(s dbsqlc.OperationStep) bool {
		of := kind.Of(kind.Kind(s.Kind))
		return of.SetsNextBoot || of.NeedsInstaller
	})
}

// boot says what the machine boots from the network, for the operations that change it.
func (l *OperationContext) boot(f *preloaded, w *operation.World) {
	b, ok := f.boots[l.Machine.MachineID]
	if !ok || !changesBoot(l.steps) {
		return
	}
	l.noInstallers = !b.Installers
	w.NewBootToken = ids.Secret(BootTokenBytes)
	w.Boot = startfacts.Boot(b)
}

// bootChanges reports whether applyBoot has something to do.
func (l *OperationContext) bootChanges(m operation.MachineChange) bool {
	return m.RevokeHosts || m.Assign != nil
}

// applyBoot stores a new assignment under the site's next revision, and ends the identities of the systems before.
func (l *OperationContext) applyBoot(
	ctx context.Context, q *dbsqlc.Queries, m operation.MachineChange, now time.Time,
) error {
	if m.RevokeHosts {
		_, err := q.RevokeHostCerts(ctx, dbsqlc.RevokeHostCertsParams{
			MachineID: &l.Machine.MachineID, OperationID: &l.Row.OperationID, Now: &now,
		})
		if err != nil {
			return fmt.Errorf("revoke the certificates of the system before: %w", err)
		}
	}
	if m.Assign == nil {
		return nil
	}
	return Assign(ctx, q, l.Machine, *m.Assign, now)
}

// endsInstallers reports whether a decision ends an operation that has installers.
func (l *OperationContext) endsInstallers(d operation.Decision) bool {
	return operation.IsTerminal(d.Op.Phase) && !operation.IsTerminal(l.Snap.Op.Phase) && changesBoot(l.steps) &&
		!l.noInstallers
}

// revokeInstallers revokes the certificates of a machine's installers whose operations have ended, and returns their
// fingerprints. It is part of the transaction in which an operation ends, so that no crash separates the two.
func revokeInstallers(ctx context.Context, q *dbsqlc.Queries, machineID string, now time.Time) ([]string, error) {
	gone, err := q.RevokeEndedInstallers(ctx, dbsqlc.RevokeEndedInstallersParams{MachineID: &machineID, Now: &now})
	if err != nil {
		return nil, fmt.Errorf("revoke the certificates of installers whose operations have ended: %w", err)
	}
	return gone, nil
}

// EndRescues lets the machines boot from their disks again whose rescue systems have done their work, and returns the
// fingerprints of the certificates that end with that. Systems of the identity level `network` keep their assignments
// until claimedBefore: until then, another system can contest the claim.
func (s *Store) EndRescues(ctx context.Context, claimedBefore, now time.Time) ([]string, error) {
	due, err := s.db.Q.RescuesToEnd(ctx, claimedBefore)
	if err != nil {
		return nil, fmt.Errorf("read rescue assignments: %w", err)
	}
	var revoked []string
	for _, id := range due {
		gone, err := s.endRescue(ctx, id, now)
		if err != nil {
			return nil, fmt.Errorf("end the rescue assignment of machine %s: %w", id, err)
		}
		revoked = append(revoked, gone...)
	}
	return revoked, nil
}

func (s *Store) endRescue(ctx context.Context, machineID string, now time.Time) (revoked []string, err error) {
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := q.LockMachine(ctx, machineID)
		if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		if m.BootMode == operation.BootRescue {
			disk := operation.Assignment{Mode: operation.BootDisk, Token: ids.Secret(BootTokenBytes)}
			if err := putAssignment(ctx, q, m, disk, now); err != nil {
				return err
			}
		}
		revoked, err = revokeInstallers(ctx, q, machineID, now)
		return err
	})
	return revoked, err
}

// Assign stores what a machine boots from the network. The rescue system of an operation that ended before goes with
// the assignment that it left.
func Assign(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, a operation.Assignment, now time.Time) error {
	if err := putAssignment(ctx, q, m, a, now); err != nil || m.BootMode != operation.BootRescue {
		return err
	}
	_, err := revokeInstallers(ctx, q, m.MachineID, now)
	return err
}

func putAssignment(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, a operation.Assignment, now time.Time,
) error {
	revision, err := q.BumpSite(ctx, m.Site)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // no site, nobody who would serve it
	}
	if err != nil {
		return fmt.Errorf("number the site's document: %w", err)
	}
	err = q.PutAssignment(ctx, dbsqlc.PutAssignmentParams{
		MachineID: m.MachineID, Site: m.Site, Mode: a.Mode, OperationID: pgtx.StrPtr(a.OperationID), Token: a.Token,
		Revision: revision, Now: now,
	})
	if err != nil {
		return fmt.Errorf("store boot assignment: %w", err)
	}
	if err := q.SetBootMode(ctx, dbsqlc.SetBootModeParams{MachineID: m.MachineID, BootMode: a.Mode}); err != nil {
		return fmt.Errorf("show boot assignment: %w", err)
	}
	return nil
}

// agentlessChanges reports whether applyAgentless has something to do.
func (l *OperationContext) agentlessChanges(d operation.Decision) bool {
	return d.Machine.RevokeHosts || d.Machine.ProbeAddress != "" || l.awaitsPhoneHome(d)
}

// awaitsPhoneHome reports whether the operation ends that a system was to phone home for.
func (l *OperationContext) awaitsPhoneHome(d operation.Decision) bool {
	return operation.IsTerminal(d.Op.Phase) && !operation.IsTerminal(l.Snap.Op.Phase) && d.Op.WritesAgentless()
}

// applyAgentless stores whether the machine's system has an agent. With its operation the secret ends, and the site is
// told whom to probe.
func (l *OperationContext) applyAgentless(ctx context.Context, q *dbsqlc.Queries, d operation.Decision) error {
	id := l.Machine.MachineID
	var agentErr, probeErr error
	if d.Machine.RevokeHosts {
		agentErr = q.SetAgentless(ctx, dbsqlc.SetAgentlessParams{MachineID: id, Agentless: d.Machine.Agentless})
	}
	if a := d.Machine.ProbeAddress; a != "" {
		probeErr = q.SetProbeAddress(ctx, dbsqlc.SetProbeAddressParams{MachineID: id, Address: a})
	}
	if err := errors.Join(agentErr, probeErr); err != nil || !l.awaitsPhoneHome(d) {
		return pgtx.Wrap(err, "note whether the system has an agent, and where it can be probed")
	}
	if _, err := q.DropPhoneHome(ctx, d.Op.ID); err != nil {
		return fmt.Errorf("end the secret of the installation: %w", err)
	}
	return pgtx.Wrap(q.TouchSite(ctx, l.Machine.Site), "number the site's document")
}
