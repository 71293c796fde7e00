package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/internal/failure"
)

// ReportNode takes what an installer says about itself and its work. The MAC address must be normalized. Actor is the
// opaque name of whoever carries the report.
func (s *Store) ReportNode(ctx context.Context, r *baremetalv1.ReportNodeRequest, actor string, now time.Time) (*baremetalv1.Node, error) {
	var id string
	err := s.inTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := q.LockMachineByMac(ctx, r.GetMacAddress())
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("MACHINE_NOT_FOUND", "no node has the MAC address %s", r.GetMacAddress()).WithField("mac_address", "unknown")
		}
		if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		id = m.MachineID
		return report(ctx, q, m, r, actor, now)
	})
	if err != nil {
		var f *failure.Error
		if errors.As(err, &f) && f.Reason == "REPORT_REFUSED" {
			s.log.Warn("installation report refused", "machine_id", id, "reason", f.Message, "status", r.GetInstallationStatus())
		}
		return nil, fmt.Errorf("take report: %w", err)
	}
	return s.GetNode(ctx, id)
}

func report(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r *baremetalv1.ReportNodeRequest, actor string, now time.Time) error {
	if m.DeletedAt != nil {
		_, refusal := node.Check(node.Deleted, node.Installing, node.NodeReport, node.Facts{})
		return nodeRefused(m, refusal)
	}
	if r.GetInstallationStatus() != "" {
		if err := reportInstall(ctx, q, m, r, actor, now); err != nil {
			return err
		}
	}
	err := q.UpsertNodeReport(ctx, dbsqlc.UpsertNodeReportParams{
		MachineID: m.MachineID, Mac: r.GetMacAddress(), IpAddress: r.GetIpAddress(), Hostname: r.GetHostname(), Vendor: r.GetVendor(),
		Model: r.GetModel(), SerialNumber: r.GetSerialNumber(), SystemUuid: r.GetSystemUuid(),
		InstallationStatus: r.GetInstallationStatus(), InstallationPercent: percentOf(r), Now: now,
	})
	if err != nil {
		return fmt.Errorf("store report: %w", err)
	}
	return nil
}

func percentOf(r *baremetalv1.ReportNodeRequest) int32 {
	switch r.GetInstallationStatus() {
	case node.Started:
		return 0
	case node.Complete:
		return 100
	}
	return r.GetInstallationProgress()
}

// reportInstall moves the node as the report says. An installation that an operation makes is judged by that operation's
// evidence: somebody else's word may tell of its progress and decides nothing.
func reportInstall(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r *baremetalv1.ReportNodeRequest, actor string, now time.Time) error {
	status := r.GetInstallationStatus()
	was := node.Install{State: node.Parse(m.NodeState), Attempts: int(m.InstallAttempts), LastError: m.LastInstallError}
	next, refusal := node.Decide(was, node.Report{Status: status, Percent: int(r.GetInstallationProgress()), Error: r.GetInstallationError()})
	switch {
	case refusal != nil:
		return nodeRefused(m, refusal)
	case status == node.Progress:
		return nil
	case m.CurrentOperationID != nil:
		return failure.Precondition("REPORT_REFUSED", "operation %s is active on the machine and decides by its own evidence", *m.CurrentOperationID).
			WithMeta("machine_id", m.MachineID).WithMeta("active_operation_id", *m.CurrentOperationID)
	}
	v := move{to: next.State, by: node.NodeReport, user: actor}
	switch status {
	case node.Complete:
		return installDone(ctx, q, m, v, now)
	case node.Failed:
		return installFailed(ctx, q, m, v, next.LastError, installPlan(m), now)
	}
	if was.State == node.Pending {
		if err := setInstall(ctx, q, m.MachineID, next, ""); err != nil {
			return err
		}
	}
	return moveTo(ctx, q, m.MachineID, v, now)
}
