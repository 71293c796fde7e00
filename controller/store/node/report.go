package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/start"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// ReportNode takes an installer's report about itself and its work. The MAC address must be normalized. Actor is the
// opaque name of the report's sender.
func (s *Store) ReportNode(
	ctx context.Context, r *baremetalv1.ReportNodeRequest, actor string, now time.Time,
) (*baremetalv1.Node, error) {
	var id string
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := q.LockMachineByMac(ctx, r.GetMacAddress())
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("MACHINE_NOT_FOUND", "no node has the MAC address %s",
				r.GetMacAddress()).WithField("mac_address", "unknown")
		}
		if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		id = m.MachineID
		return s.report(ctx, q, m, r, actor, now)
	})
	if err != nil {
		var f *failure.Error
		if errors.As(err, &f) && f.Reason == "REPORT_REFUSED" {
			s.db.Log.Warn("installation report refused", "machine_id", id, "reason", f.Message, "status",
				r.GetInstallationStatus())
		}
		return nil, fmt.Errorf("take report: %w", err)
	}
	return s.GetNode(ctx, id)
}

func (s *Store) report(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r *baremetalv1.ReportNodeRequest, actor string,
	now time.Time,
) error {
	if m.DeletedAt != nil {
		_, refusal := node.Check(node.Deleted, node.Installing, node.NodeReport, node.Facts{})
		return nodestate.NodeRefused(m, refusal)
	}
	if r.GetInstallationStatus() != "" {
		if err := s.reportInstall(ctx, q, m, r, actor, now); err != nil {
			return err
		}
	}
	err := q.UpsertNodeReport(ctx, dbsqlc.UpsertNodeReportParams{
		MachineID: m.MachineID, Mac: r.GetMacAddress(), IpAddress: r.GetIpAddress(), Hostname: r.GetHostname(),
		Vendor: r.GetVendor(),
		Model:  r.GetModel(), SerialNumber: r.GetSerialNumber(), SystemUuid: r.GetSystemUuid(),
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

// reportInstall brings the report to the operation that waits for it, which moves the node.
func (s *Store) reportInstall(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r *baremetalv1.ReportNodeRequest, actor string,
	now time.Time,
) error {
	e := operation.Reported{Status: r.GetInstallationStatus(), Error: r.GetInstallationError(), Actor: actor}
	f, err := reportFacts(ctx, q, m, r)
	if err != nil {
		return err
	}
	switch taken, err := f.Take(); {
	case err != nil || taken == node.Shown:
		return err
	case taken == node.Begins:
		if m, err = s.awaitReports(ctx, q, m, actor, now); err != nil {
			return err
		}
	}
	return s.operations.DecideNoted(ctx, q, *m.CurrentOperationID, e, now)
}

// reportFacts reads what decides about a report.
func reportFacts(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r *baremetalv1.ReportNodeRequest,
) (node.Reported, error) {
	f := node.Reported{
		MachineID: m.MachineID, State: m.NodeState, ActiveOperation: pgtx.StrVal(m.CurrentOperationID),
		Report: node.Report{Status: r.GetInstallationStatus(), Percent: int(r.GetInstallationProgress()),
			Error: r.GetInstallationError()},
		Install: node.Install{State: node.Parse(m.NodeState), Attempts: int(m.InstallAttempts),
			LastError: m.LastInstallError},
	}
	if f.ActiveOperation != "" {
		row, err := q.GetOperation(ctx, f.ActiveOperation)
		if err != nil {
			return f, fmt.Errorf("read the active operation: %w", err)
		}
		f.Waits = row.PlanID == operationstore.ReportedPlan
		return f, nil
	}
	conds, err := q.ConditionsOf(ctx, []string{m.MachineID})
	if err != nil {
		return f, fmt.Errorf("read conditions: %w", err)
	}
	flags := convert.FleetFacts(m, conds).Conditions
	f.Blocked = flags[fleet.RMA] || flags[fleet.RetiredFlag]
	return f, nil
}

// awaitReports makes the operation that owns the node while an installer that is not ours installs it, and returns the
// machine as it is then. A node that was pending is installing from here on, with all its attempts.
func (s *Store) awaitReports(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, actor string, now time.Time,
) (dbsqlc.Machine, error) {
	p, err := catalogstore.GetPlan(ctx, q, operationstore.ReportedPlan)
	if err != nil {
		return m, err
	}
	steps, err := plan.Fill(p, kind.Inputs{}, s.catalog.Defaults)
	if err != nil {
		return m, err
	}
	request := operationstore.StartRequest{
		MachineID: m.MachineID, RequestID: ids.New(ids.Operation), Type: fleet.NodeTransition,
		PlanID: operationstore.ReportedPlan, Actor: actor,
		Params: map[string]string{"node_state": node.Name(node.Installing)},
	}
	n, err := s.operations.InsertOperation(ctx, q, m, request, start.Move(request, p, steps), now)
	if err != nil {
		return m, err
	}
	op := n.Op
	entry := history.AuditEntry{Actor: actor, Verb: string(request.Type), Target: m.MachineID, Request: request.RequestID,
		Operation: op.ID, Data: request.Params}
	if err := history.Audit(ctx, q, entry, now); err != nil {
		return m, err
	}
	if node.Parse(m.NodeState) == node.Pending {
		if err := nodestate.SetInstall(ctx, q, m, node.Install{}, ""); err != nil {
			return m, err
		}
		v := nodestate.Move{To: node.Installing, By: node.NodeReport, User: actor,
			Metadata: map[string]string{"operation_id": op.ID}}
		if err := nodestate.MoveTo(ctx, q, m.MachineID, v, now); err != nil {
			return m, err
		}
	}
	if _, err := s.operations.DecideIn(ctx, q, op.ID, operation.Evaluate{}, now); err != nil {
		return m, err
	}
	return machinestore.LockMachine(ctx, q, m.MachineID)
}

// MachineOfMAC returns the id of the machine that has a MAC address; empty where none has.
func (s *Store) MachineOfMAC(ctx context.Context, mac string) (string, error) {
	id, err := s.db.Q.MachineOfMAC(ctx, mac)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return id, pgtx.Wrap(err, "look up MAC address")
}
