package nodestate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// in makes a machine a node of a state.
func in(t *testing.T, s *store.Store, id string, state node.State, set string) {
	t.Helper()
	storetest.Register(t, s, id, fmt.Sprintf("52:54:00:00:00:%02x", len(id)*7%256))
	replica(t, s, "UPDATE machines SET node_state = $1 WHERE machine_id = $2", node.Name(state), id)
	if set != "" {
		replica(t, s, "UPDATE machines SET "+set+" WHERE machine_id = $1", id)
	}
}

func move(t *testing.T, s *store.Store, id string, v nodestate.Move, now time.Time) error {
	t.Helper()
	return s.DB.InTx(t.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
		return nodestate.MoveTo(t.Context(), q, id, v, now)
	})
}

// logged is a row of the log of a node's states, with the text that the audit log has for it.
type logged struct {
	From, To, By, User string
	Metadata           map[string]string
	At                 time.Time
	Actor, Comment     string
}

func lastMove(t *testing.T, s *store.Store, id string) (l logged) {
	t.Helper()
	var metadata []byte
	must(t, s.DB.Pool().QueryRow(t.Context(), `SELECT l.from_state, l.to_state, l.triggered_by, l.user_id, l.metadata,
		l.created_at, coalesce(a.actor, ''), coalesce(a.event_data ->> 'comment', '') FROM node_state_log l
		LEFT JOIN audit_log a USING (audit_id) WHERE l.machine_id = $1 ORDER BY l.id DESC LIMIT 1`, id).
		Scan(&l.From, &l.To, &l.By, &l.User, &metadata, &l.At, &l.Actor, &l.Comment), json.Unmarshal(metadata, &l.Metadata))
	return l
}

// A move is logged with its trigger, user and metadata; its comment is in the audit log.
func TestMovesAreLoggedWithTheirCause(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	at := storetest.Now()
	in(t, s, "m-1", node.Active, "")
	in(t, s, "m-11", node.Active, "")
	for i, c := range []struct {
		move nodestate.Move
		want logged
	}{
		{nodestate.Move{To: node.Offline, By: node.System, Metadata: map[string]string{"reason": "silent"}},
			logged{From: "active", To: "offline", By: "system", Metadata: map[string]string{"reason": "silent"}}},
		{nodestate.Move{To: node.Active, By: node.System, User: "ag-1"},
			logged{From: "offline", To: "active", By: "system", User: "ag-1"}},
		{nodestate.Move{To: node.Quarantined, By: node.Admin, User: "ann", Comment: "it smells"},
			logged{From: "active", To: "quarantined", By: "admin", User: "ann", Actor: "ann", Comment: "it smells"}},
		{nodestate.Move{To: node.Active, By: node.System, Comment: "it is well"},
			logged{From: "quarantined", To: "active", By: "system", Actor: "system", Comment: "it is well"}},
	} {
		now := at.Add(time.Duration(i) * time.Second)
		must(t, move(t, s, "m-1", c.move, now))
		got := lastMove(t, s, "m-1")
		if !got.At.Equal(now) || !maps.Equal(got.Metadata, c.want.Metadata) {
			t.Errorf("move %d: %+v at %v", i, got, got.At)
		}
		got.At, got.Metadata, c.want.Metadata = time.Time{}, nil, nil
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("move %d: %+v, want %+v", i, got, c.want)
		}
	}
	before := storetest.Everything(t, s, "machines", "node_state_log", "audit_log")
	must(t, move(t, s, "m-1", nodestate.Move{To: node.Active, By: node.Admin, Comment: "again"}, at))
	storetest.WantReason(t, move(t, s, "m-1", nodestate.Move{To: node.Installed, By: node.Admin}, at),
		"NODE_TRANSITION_ILLEGAL")
	storetest.WantReason(t, move(t, s, "m-1", nodestate.Move{To: node.Quarantined, By: node.Admin}, at),
		"NODE_GUARD_FAILED")
	storetest.WantReason(t, move(t, s, "m-none", nodestate.Move{To: node.Active, By: node.Admin}, at), "MACHINE_NOT_FOUND")
	if after := storetest.Everything(t, s, "machines", "node_state_log", "audit_log"); after != before {
		t.Error("a move that was none, or was refused, has changed something")
	}
	// A row of the audit log that is there already is not written twice.
	var audit int64
	must(t, s.DB.Pool().QueryRow(t.Context(), "SELECT max(audit_id) FROM audit_log").Scan(&audit))
	must(t, move(t, s, "m-11", nodestate.Move{To: node.Draining, By: node.Admin, User: "ann", AuditID: &audit}, at))
	if got := lastMove(t, s, "m-11"); got.Comment != "it is well" ||
		storetest.Count(t, s, "SELECT count(*) FROM audit_log WHERE audit_id > $1", audit) != 0 {
		t.Errorf("with a row of the audit log: %+v", got)
	}
}

// Several moves are made one after the other, each with the metadata as they were given.
func TestMovesAlongAPath(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	in(t, s, "m-1", node.BootstrapIssued, "")
	metadata := map[string]string{"reason": "x"}
	must(t, s.DB.InTx(t.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
		return nodestate.MoveAlong(t.Context(), q, "m-1", nodestate.Move{By: node.System, User: "u", Metadata: metadata},
			storetest.Now(), node.Enrolling, node.Active)
	}))
	if n := storetest.Count(t, s, `SELECT count(*) FROM node_state_log WHERE user_id = 'u' AND metadata = '{"reason": "x"}'
		AND (from_state, to_state) IN (('bootstrap_issued', 'enrolling'), ('enrolling', 'active'))`); n != 2 {
		t.Errorf("%d moves: %v", n, storetest.NodeMoves(t, s, "m-1"))
	}
	err := s.DB.InTx(t.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
		return nodestate.MoveAlong(t.Context(), q, "m-1", nodestate.Move{By: node.System}, storetest.Now(), node.Offline,
			node.Installed, node.Active)
	})
	storetest.WantReason(t, err, "NODE_TRANSITION_ILLEGAL")
}

// A quarantine keeps its reason and needs a person; its release takes both away.
func TestAQuarantineHasAReason(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	at := storetest.Now()
	for i, c := range []struct {
		move nodestate.Move
		want string
	}{
		{nodestate.Move{Reason: "CLONE_DETECTED", Metadata: map[string]string{"reason": "OTHER"}}, "CLONE_DETECTED"},
		{nodestate.Move{Metadata: map[string]string{"reason": "OTHER"}}, "OTHER"},
		{nodestate.Move{}, "MACHINE_QUARANTINED"},
	} {
		id := fmt.Sprint("m-", i)
		storetest.Register(t, s, id)
		replica(t, s, "UPDATE machines SET node_state = 'active' WHERE machine_id = $1", id)
		c.move.To, c.move.By = node.Quarantined, node.System
		must(t, move(t, s, id, c.move, at))
		m, err := s.DB.Q.GetMachine(t.Context(), id)
		must(t, err)
		needs := storetest.Condition(storetest.Machine(t, s, id), fleet.NeedsIntervention)
		if m.QuarantineReason != c.want || m.QuarantinedFrom != "active" || needs.GetReason() != c.want {
			t.Errorf("%+v: %s from %s, it needs %v", c.move, m.QuarantineReason, m.QuarantinedFrom, needs)
		}
		must(t, move(t, s, id, nodestate.Move{To: node.Active, By: node.System}, at))
		if m, err = s.DB.Q.GetMachine(t.Context(), id); err != nil || m.QuarantineReason != "" || m.QuarantinedFrom != "" ||
			storetest.Condition(storetest.Machine(t, s, id), fleet.NeedsIntervention) != nil {
			t.Errorf("released: %s from %s, %v", m.QuarantineReason, m.QuarantinedFrom, err)
		}
	}
}

// A machine that comes into service runs a system: the one that has enrolled, or that an admin has verified.
func TestWhoseSystemIsAdopted(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for i, c := range []struct {
		from, to node.State
		by       node.Trigger
		agent    string
		reason   string
		message  string
	}{
		{node.Enrolling, node.Active, node.System, "ag-1", "Adopted", ""},
		{node.Enrolling, node.Active, node.System, "", "", ""},
		{node.Installed, node.Active, node.Admin, "", "VerifiedByAdmin", "ann"},
		{node.Installed, node.Active, node.Workflow, "", "", ""},
		{node.Offline, node.Active, node.System, "ag-1", "", ""},
		{node.Enrolling, node.Quarantined, node.System, "ag-1", "", ""},
	} {
		id := fmt.Sprint("m-", i)
		storetest.Register(t, s, id)
		replica(t, s, "UPDATE machines SET node_state = $1, agent_id = nullif($2, '') WHERE machine_id = $3",
			node.Name(c.from), c.agent, id)
		must(t, move(t, s, id, nodestate.Move{To: c.to, By: c.by, User: "ann"}, storetest.Now()))
		got := storetest.Condition(storetest.Machine(t, s, id), fleet.Provisioned)
		if (got == nil) != (c.reason == "") || got.GetReason() != c.reason || got.GetMessage() != c.message {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A node that leaves the inventory is retired and out of no service any more; one that comes back is not.
func TestRetirementFollowsTheNode(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	at := storetest.Now()
	storetest.Live(t, s, "m-work") // its operation stands for all
	in(t, s, "m-1", node.Active, "")
	replica(t, s, `INSERT INTO budget_slots (operation_id, machine_id, site, labels, harm, taken_at)
		SELECT operation_id, 'm-1', '', '{}', h, now()
		FROM operations CROSS JOIN (VALUES ('DESTROYS'), ('INTERRUPTS')) v (h)`)
	is := func(when string, retired bool, message string, slots int) {
		t.Helper()
		c := storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.RetiredFlag)
		if (c != nil) != retired || c != nil && (c.GetReason() != "NodeState" || c.GetMessage() != message) {
			t.Errorf("%s: retired is %v", when, c)
		}
		if n := storetest.Count(t, s, "SELECT count(*) FROM budget_slots WHERE released_at IS NULL"); n != slots {
			t.Errorf("%s: %d slots are held", when, n)
		}
	}
	must(t, move(t, s, "m-1", nodestate.Move{To: node.Offline, By: node.System}, at))
	is("offline", false, "", 2)
	must(t, move(t, s, "m-1", nodestate.Move{To: node.Retired, By: node.Admin, Purge: true}, at.Add(time.Second)))
	is("retired", true, "the node is retired", 1)
	if n := storetest.Count(t, s, "SELECT count(*) FROM budget_slots WHERE harm = 'INTERRUPTS' AND released_at = $1",
		at.Add(time.Second)); n != 1 {
		t.Error("it is not the interruption that has ended")
	}
	must(t, move(t, s, "m-1", nodestate.Move{To: node.Removing, By: node.Workflow}, at))
	is("removing", true, "the node is retired", 1)
	must(t, move(t, s, "m-1", nodestate.Move{To: node.Retired, By: node.Workflow}, at),
		move(t, s, "m-1", nodestate.Move{To: node.Offline, By: node.Admin}, at))
	is("back", false, "", 1)
}

// A record that is deleted leaves its addresses to another one, and its agent's certificates are worth nothing.
func TestADeletedRecordLeavesNothing(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	at := storetest.Now()
	a, _ := host(t, s, "m-1")
	host(t, s, "m-2")
	replica(
		t,
		s,
		"INSERT INTO machine_macs (machine_id, mac) VALUES ('m-1', '52:54:00:00:00:01'), ('m-2', '52:54:00:00:00:02')",
	)
	storetest.Register(t, s, "m-3")
	for _, id := range []string{"m-1", "m-3"} {
		must(t, move(t, s, id, nodestate.Move{To: node.Deleted, By: node.Admin, Deleting: true, Purge: true}, at))
		if m, err := s.DB.Q.GetMachine(t.Context(), id); err != nil || m.DeletedAt == nil || !m.DeletedAt.Equal(at) ||
			m.NodeState != "deleted" {
			t.Errorf("%s is %s, deleted at %v, %v", id, m.NodeState, m.DeletedAt, err)
		}
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM machine_macs"); n != 1 {
		t.Errorf("%d addresses are taken", n)
	}
	if n, m := storetest.Count(t, s, "SELECT count(*) FROM agent_certs WHERE revoked_at = $1 AND agent_id = $2", at, a.ID),
		storetest.Count(t, s, "SELECT count(*) FROM agent_certs WHERE revoked_at IS NULL"); n != 1 || m != 1 {
		t.Errorf("%d certificates are revoked, %d are not", n, m)
	}
}

// Removal takes the evidence that the disks were erased, or that they need not be.
func TestARemovalNeedsTheErasure(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for i, c := range []struct {
		erasure string
		refused bool
	}{{"", true}, {"begun", true}, {nodestate.ErasureVerified, false}, {nodestate.ErasureNotRequired, false}} {
		id := fmt.Sprint("m-", i)
		storetest.Register(t, s, id)
		replica(t, s, "UPDATE machines SET node_state = 'removing' WHERE machine_id = $1", id)
		err := move(t, s, id, nodestate.Move{To: node.Deleted, By: node.Workflow,
			Metadata: map[string]string{nodestate.MetaErasure: c.erasure}}, storetest.Now())
		if c.refused {
			storetest.WantReason(t, err, "NODE_GUARD_FAILED")
		} else if err != nil {
			t.Errorf("%q: %v", c.erasure, err)
		}
	}
}

// What guards look at is read from the machine, but for the operation that ends with the move.
func TestFactsOfAMove(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	in(t, s, "m-1", node.InstallFailed, `current_operation_id = 'op-1', install_attempts = 2, failed_plan_id = 'reboot',
		quarantined_from = 'offline', plan_id = 'repave'`)
	m, err := s.DB.Q.GetMachine(t.Context(), "m-1")
	must(t, err)
	facts := func(v nodestate.Move, m dbsqlc.Machine) node.Facts {
		t.Helper()
		f, err := v.FactsWithPlan(t.Context(), s.DB.Q, m)
		must(t, err)
		return f
	}
	want := node.Facts{
		Attempts:        2,
		PlanID:          "repave",
		FailedPlanID:    "reboot",
		ActiveOperation: "op-1",
		ErasureRequired: true,
		From:            node.Offline,
	}
	if got := facts(nodestate.Move{}, m); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	want.ActiveOperation, want.Force, want.Deleting = "", true, true
	want.Purge, want.Installs, want.Comment = true, true, true
	if got := facts(nodestate.Move{Ended: "op-1", Force: true, Deleting: true, Purge: true, Installs: true, Comment: "x"},
		m); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// An admin's removal asks whether the disks hold a system; that of work does not.
	replica(t, s, `INSERT INTO machine_conditions (machine_id, type, status, reason, last_transition)
		VALUES ('m-1', 'Provisioned', true, '', now())`)
	for _, c := range []struct {
		by    node.Trigger
		to    node.State
		holds bool
	}{
		{node.Admin, node.Retired, true}, {node.Admin, node.Deleted, true}, {node.Admin, node.Pending, false},
		{node.Workflow, node.Retired, false},
	} {
		if got := facts(nodestate.Move{By: c.by, To: c.to}, m); got.Holds != c.holds {
			t.Errorf("%+v: holds %t", c, got.Holds)
		}
	}
	replica(t, s, "DELETE FROM machine_conditions")
	if holds, err := nodestate.Holds(t.Context(), s.DB.Q, m); err != nil || holds {
		t.Errorf("without a system it holds one: %t, %v", holds, err)
	}
	m.NodeState = "active"
	if holds, err := nodestate.Holds(t.Context(), s.DB.Q, m); err != nil || !holds {
		t.Errorf("in service it holds none: %t, %v", holds, err)
	}
}

// A node is installed again with another plan; one with the steps of the plan that failed, or that the node had all
// along, is none.
func TestAnotherPlanThanTheOneThatFailed(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for name, c := range map[string]struct {
		plan, failed, failedNode string
		to                       node.State
		same                     bool
	}{
		"the same":             {"repave", "repave", "", node.Pending, true},
		"another":              {"reboot", "repave", "", node.Pending, false},
		"the node's all along": {"reboot", "repave", "reboot", node.Pending, true},
		"on another way":       {"reboot", "repave", "reboot", node.Quarantined, false},
	} {
		m := dbsqlc.Machine{MachineID: "m-1", NodeState: "install_failed", PlanID: &c.plan, FailedPlanID: c.failed,
			FailedNodePlan: c.failedNode}
		f, err := nodestate.Move{To: c.to, By: node.Admin}.FactsWithPlan(t.Context(), s.DB.Q, m)
		if err != nil || f.PlanID != c.plan || (f.FailedPlanID == f.PlanID) != c.same {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
		m.NodeState = "installed"
		if f, err := (nodestate.Move{To: c.to, By: node.Admin}).FactsWithPlan(t.Context(), s.DB.Q, m); err != nil ||
			f.FailedPlanID != c.failed {
			t.Errorf("%s, of one that has not failed: %+v, %v", name, f, err)
		}
	}
	own := "own"
	for _, c := range []struct {
		provider string
		plan     *string
		want     string
	}{
		{"maas", nil, "repave-maas"}, {"maas", &own, "own"}, {"agent", nil, fleet.DefaultPlan(fleet.Reimage)},
		{"agent", &own, "own"},
	} {
		if got := nodestate.InstallPlan(dbsqlc.Machine{Provider: c.provider, PlanID: c.plan}); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// Failed attempts are counted with their error and plan; after the last one the node leaves installing, and the log has
// the error and the number of attempts.
func TestFailedAttemptsToInstall(t *testing.T) {
	t.Parallel()
	for name, metadata := range map[string]map[string]string{"alone": nil, "with more": {"operation_id": "op-1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storetest.New(t)
			at := storetest.Now()
			in(t, s, "m-1", node.Installing, "plan_id = 'repave'")
			for attempt := 1; attempt <= node.MaxAttempts; attempt++ {
				why := fmt.Sprint("error ", attempt)
				inTx(t, s, "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
					return nodestate.InstallFailed(t.Context(), q, m, nodestate.Move{By: node.Workflow, Metadata: metadata}, why,
						"write", at)
				})
				m, err := s.DB.Q.GetMachine(t.Context(), "m-1")
				must(t, err)
				state := node.Installing
				if attempt == node.MaxAttempts {
					state = node.InstallFailed
				}
				if m.NodeState != node.Name(state) || int(m.InstallAttempts) != attempt || m.LastInstallError != why ||
					m.FailedPlanID != "write" || m.FailedNodePlan != "repave" {
					t.Errorf("attempt %d: %+v", attempt, m)
				}
			}
			want := map[string]string{"error": "error 3", "attempt": "3"}
			maps.Copy(want, metadata)
			if got := lastMove(t, s, "m-1"); got.To != "install_failed" || !maps.Equal(got.Metadata, want) {
				t.Errorf("logged: %+v, want %v", got, want)
			}
			inTx(t, s, "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
				return nodestate.SetInstall(t.Context(), q, m, node.Install{}, "")
			})
			m, err := s.DB.Q.GetMachine(t.Context(), "m-1")
			if err != nil || m.InstallAttempts != 0 || m.LastInstallError != "" || m.FailedPlanID != "" ||
				m.FailedNodePlan != "" {
				t.Errorf("begun anew: %+v, %v", m, err)
			}
		})
	}
}

// A node is on its way in until its first session, unless it was deleted.
func TestNodesOnTheirWayIn(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for _, state := range node.States() {
		want := state == node.BootstrapIssued || state == node.Enrolling
		if got := nodestate.OnTheWayIn(dbsqlc.Machine{NodeState: node.Name(state)}); got != want {
			t.Errorf("%s: %t", node.Name(state), got)
		}
		if nodestate.OnTheWayIn(dbsqlc.Machine{NodeState: node.Name(state), DeletedAt: &at}) {
			t.Errorf("%s, deleted: on its way in", node.Name(state))
		}
	}
}
