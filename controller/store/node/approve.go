package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// ApproveRequest registers a machine that a site agent has seen. The MAC address must be normalized.
type ApproveRequest struct {
	Site, MAC, RequestID string
	PlanID               string
	Machine              *baremetalv1.Machine
	Actor, Comment       string
	// ValidateOnly checks the approval and registers nothing.
	ValidateOnly bool
}

func (r ApproveRequest) start(machineID string) operationstore.StartRequest {
	return operationstore.StartRequest{
		MachineID: machineID, RequestID: r.RequestID, Type: fleet.NodeTransition, Actor: r.Actor, Comment: r.Comment,
		Params: map[string]string{
			"node_state": node.Name(node.Pending), "site": r.Site, "mac_address": r.MAC, "install_plan_id": r.PlanID,
			"group": r.Machine.GetSpec().GetGroup(),
		},
	}
}

// ApproveDiscovered registers a discovered machine and moves it to pending, in one transaction. A repeat returns the
// first one's operation. created reports whether the operation is new.
func (s *Store) ApproveDiscovered(
	ctx context.Context, r ApproveRequest, now time.Time,
) (op *baremetalv1.Operation, created bool, err error) {
	for range pgtx.MaxTries {
		// Two approvals at once: where the other one won, its machine is found the next time.
		if op, created, err = s.approveOnce(ctx, r, now); !takenMeanwhile(err) {
			break
		}
	}
	if err := machinestore.ConflictOf(err, r.Machine); err != nil {
		return nil, false, fmt.Errorf("approve discovered machine: %w", err)
	}
	return op, created, nil
}

func takenMeanwhile(err error) bool {
	var f *failure.Error
	return pgtx.UniqueViolation(err, "machine_macs_pkey") || pgtx.UniqueViolation(err, "machines_pkey") ||
		errors.As(err, &f) && f.Reason == "MAC_ADDRESS_IN_USE"
}

func (s *Store) approveOnce(
	ctx context.Context, r ApproveRequest, now time.Time,
) (op *baremetalv1.Operation, created bool, err error) {
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		known, err := q.LockMachineByMac(ctx, r.MAC)
		switch {
		case err == nil:
			op, err = s.approvedBefore(ctx, q, known, r)
			created = false
			return err
		case !errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("look for the machine: %w", err)
		}
		op, err = s.approve(ctx, q, r, now)
		created = err == nil
		if created && r.ValidateOnly {
			return errDryRun
		}
		return err
	})
	if errors.Is(err, errDryRun) {
		op.OperationId, op.MachineId = "", r.Machine.GetMachineId()
		return op, false, nil
	}
	return op, created, err
}

// approvedBefore finds the operation of a repeated approval; a machine that was registered otherwise is no discovery.
func (s *Store) approvedBefore(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r ApproveRequest,
) (*baremetalv1.Operation, error) {
	op, err := s.operations.Replay(ctx, q, r.start(m.MachineID))
	if op != nil || err != nil {
		return op, err
	}
	return nil, machinestore.MACInUse(ctx, "mac_address", r.MAC, m.MachineID)
}

func (s *Store) approve(
	ctx context.Context, q *dbsqlc.Queries, r ApproveRequest, now time.Time,
) (*baremetalv1.Operation, error) {
	seen, err := q.GetDiscovered(ctx, dbsqlc.GetDiscoveredParams{Site: r.Site, Mac: r.MAC})
	d := node.Discovery{Site: r.Site, MAC: r.MAC, MachineID: r.Machine.GetMachineId(), Seen: err == nil}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read discovered machine: %w", err)
	}
	if d.Taken, err = registered(ctx, q, d.MachineID); err != nil {
		return nil, err
	}
	if err := d.Refuse(); err != nil {
		return nil, err
	}
	m := proto.Clone(r.Machine).(*baremetalv1.Machine)
	if m.GetMachineId() == "" {
		m.MachineId = ids.New(ids.Machine)
	}
	if m.GetSpec() == nil {
		m.Spec = &baremetalv1.MachineSpec{}
	}
	m.Spec.Site, m.Spec.MacAddresses = seen.Site, withMAC(m.GetSpec().GetMacAddresses(), r.MAC)
	if err := s.machines.InsertMachine(ctx, q, m, r.RequestID, r.Actor, now); err != nil {
		return nil, err
	}
	if err := setNodePlan(ctx, q, m.GetMachineId(), r.PlanID); err != nil {
		return nil, err
	}
	row, err := q.LockMachine(ctx, m.GetMachineId())
	if err != nil {
		return nil, fmt.Errorf("lock machine: %w", err)
	}
	v := nodestate.Move{To: node.Pending, By: node.Admin, User: r.Actor, Comment: r.Comment}
	return s.record(ctx, q, row, r.start(row.MachineID), v, now)
}

// registered reports whether a machine has the id.
func registered(ctx context.Context, q *dbsqlc.Queries, id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	_, err := q.GetMachine(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, pgtx.Wrap(err, "read machine")
}

func withMAC(macs []string, mac string) []string {
	for _, m := range macs {
		if m == mac {
			return macs
		}
	}
	return append([]string{mac}, macs...)
}
