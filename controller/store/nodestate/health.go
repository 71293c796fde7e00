package nodestate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/accelerator"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// HealthChecks evaluates the health checks of the machine's group. live reports whether its own agent has a session.
func HealthChecks(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, live bool) ([]node.HealthCheck, error) {
	g, err := GroupOf(ctx, q, m)
	if err != nil || len(g.HealthChecks) == 0 {
		return nil, err
	}
	h, err := healthOf(ctx, q, m)
	h.Live = live
	return node.Evaluate(g.HealthChecks, h), err
}

// FailingChecks lists the health checks of the machine's group that do not pass, each as "check: why".
func FailingChecks(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, live bool) ([]string, error) {
	checks, err := HealthChecks(ctx, q, m, live)
	return node.Failing(checks), err
}

// healthOf reads what the health checks compare, but for the session.
func healthOf(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine) (node.Health, error) {
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil {
		return node.Health{}, err
	}
	h := node.Health{Serial: spec.GetSerial(), MACs: spec.GetMacAddresses()}
	if h.ProviderFault, h.ProviderUnseen, err = providerFault(ctx, q, m); err != nil {
		return h, err
	}
	row, err := q.LatestInventory(ctx, m.MachineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("read inventory: %w", err)
	}
	seen, err := parseInventory(row.Document)
	if err != nil {
		return h, err
	}
	h.Inventoried, h.Simulated, h.Seen = true, row.Simulated, seen.strong()
	h.Seen.Chassis = hwid.Text(seen.System.ChassisSerial) // as good as any other label for a person
	for _, n := range seen.NICs {
		h.SeenMACs = append(h.SeenMACs, strings.ToLower(n.MAC))
	}
	return h, nil
}

// inventoryDoc is what of an agent's inventory the controller decides by; see the agent's package inventory.
type inventoryDoc struct {
	System struct {
		UUID, Serial  string
		BoardSerial   string `json:"board_serial"`
		ChassisSerial string `json:"chassis_serial"`
	}
	NICs []struct{ MAC string }
	PCI  []struct{ Class, Vendor string }
}

func parseInventory[T ~string | ~[]byte](raw T) (inventoryDoc, error) {
	var doc inventoryDoc
	if err := json.Unmarshal([]byte(raw), &doc); err != nil {
		return doc, fmt.Errorf("parse stored inventory: %w", err)
	}
	return doc, nil
}

// ObservedHardware returns the strong facts of the machine's newest inventory; none of a machine without one, or of a
// simulated one.
func ObservedHardware(ctx context.Context, q *dbsqlc.Queries, machineID string) (hwid.Facts, error) {
	row, err := q.LatestInventory(ctx, machineID)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && row.Simulated {
		return hwid.Facts{}, nil
	}
	if err != nil {
		return hwid.Facts{}, fmt.Errorf("read inventory: %w", err)
	}
	doc, err := parseInventory(row.Document)
	return doc.strong(), err
}

// strong are the strong facts of an inventory.
func (d inventoryDoc) strong() hwid.Facts {
	s := d.System
	return hwid.Facts{UUID: hwid.UUID(s.UUID), Serial: hwid.Text(s.Serial), Board: hwid.Text(s.BoardSerial)}
}

// ReadableInventory reports whether a document is one that the controller can decide by: what it could not read later
// would stop all work on its machine.
func ReadableInventory(document []byte) bool {
	_, err := parseInventory(document)
	_, diskErr := disk.MachineOf(document)
	return err == nil && diskErr == nil && bytes.HasPrefix(bytes.TrimSpace(document), []byte("{"))
}

// HasAccelerator reports whether the newest inventory of a machine shows an accelerator; one that has reported none
// shows none.
func HasAccelerator(ctx context.Context, q *dbsqlc.Queries, machineID string) (bool, error) {
	row, err := q.LatestInventory(ctx, machineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read inventory: %w", err)
	}
	doc, err := parseInventory(row.Document)
	if err != nil {
		return false, err
	}
	for _, p := range doc.PCI {
		if accelerator.Is(p.Class, p.Vendor) {
			return true, nil
		}
	}
	return false, nil
}

// providerFault returns what of the machine's provider is not healthy, empty where nothing is, and reports whether the
// provider was never asked.
func providerFault(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine) (fault string, unseen bool, err error) {
	if m.Provider != workflow.ProviderMAAS {
		conds, err := q.ConditionsOf(ctx, []string{m.MachineID})
		if err != nil {
			return "", false, fmt.Errorf("read conditions: %w", err)
		}
		i := slices.IndexFunc(conds,
			func(c dbsqlc.MachineCondition) bool { return c.Type == string(fleet.BMCReachable) && !c.Status })
		switch {
		case i >= 0 && conds[i].Known:
			return "the machine's BMC does not answer", false, nil
		case i >= 0:
			return "nothing observes the machine's BMC: the agent of site " + m.Site + " is silent", true, nil
		}
		return "", false, nil
	}
	o, err := q.GetProviderObservation(ctx, m.MachineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "MAAS was not asked yet", true, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read what the provider says: %w", err)
	}
	if o.State != string(maasstatus.StateDeployed) {
		return "MAAS says " + o.State + ", not Deployed", false, nil
	}
	return "", false, nil
}

// Arrive makes a node active whose agent has a session and whose health checks pass; any other stays what it is.
func Arrive(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, agentID string, now time.Time) (bool, error) {
	failing, err := FailingChecks(ctx, q, m, true)
	if err != nil || len(failing) > 0 {
		return false, err
	}
	path := []node.State{node.Enrolling, node.Active}
	if node.Parse(m.NodeState) == node.Enrolling {
		path = path[1:]
	}
	return true, MoveAlong(ctx, q, m.MachineID, Move{By: node.System, User: agentID}, now, path...)
}

// AdmitHealthy makes the nodes active that have waited for their health checks and pass them now, and returns their
// number.
func (s *Store) AdmitHealthy(ctx context.Context, now time.Time) (int, error) {
	arrived, after := 0, ""
	for {
		waiting, err := s.db.Q.NodesOnTheirWayIn(ctx, dbsqlc.NodesOnTheirWayInParams{AfterID: after, PageSize: 500})
		if err != nil {
			return arrived, fmt.Errorf("look for nodes on their way in: %w", err)
		}
		for _, id := range waiting {
			after = id
			ok, err := s.admitHealthy(ctx, id, now)
			if err != nil {
				return arrived, fmt.Errorf("check the health of %s: %w", id, err)
			}
			if ok {
				arrived++
			}
		}
		if len(waiting) == 0 {
			return arrived, nil
		}
	}
}

func (s *Store) admitHealthy(ctx context.Context, machineID string, now time.Time) (arrived bool, err error) {
	// Most of those that wait go on waiting: they are looked at without a lock first.
	m, err := s.db.Q.GetMachine(ctx, machineID)
	if err != nil {
		return false, fmt.Errorf("read machine: %w", err)
	}
	if failing, err := FailingChecks(ctx, s.db.Q, m, true); err != nil || len(failing) > 0 {
		return false, err
	}
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		arrived = false
		m, err := machinestore.LockMachine(ctx, q, machineID)
		if err != nil || !OnTheWayIn(m) {
			return err
		}
		live, err := AgentLive(ctx, q, m, now)
		if err != nil || !live {
			return err
		}
		if held, err := HeldByWorkflow(ctx, q, machineID, node.Parse(m.NodeState)); err != nil || held {
			return err
		}
		arrived, err = Arrive(ctx, q, m, pgtx.StrVal(m.AgentID), now)
		return err
	})
	return arrived, err
}

// OnTheWayIn reports whether the node is in a state that its first session leads out of.
func OnTheWayIn(m dbsqlc.Machine) bool {
	s := node.Parse(m.NodeState)
	return m.DeletedAt == nil && (s == node.BootstrapIssued || s == node.Enrolling)
}

// HeldByWorkflow reports whether a node on its way in belongs to an onboarding, which decides when it has arrived.
func HeldByWorkflow(ctx context.Context, q *dbsqlc.Queries, machineID string, state node.State) (bool, error) {
	if state != node.BootstrapIssued && state != node.Enrolling {
		return false, nil
	}
	_, err := q.OpenWorkflowOf(ctx, machineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for an open workflow: %w", err)
	}
	return true, nil
}
