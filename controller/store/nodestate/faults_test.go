package nodestate_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/jackc/pgx/v5"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// errOf drops what a call returns besides its error.
func errOf[T any](_ T, err error) error { return err }

// with makes a call with a machine that is locked, in a transaction.
func with(t *testing.T, s *store.Store, id string, fn func(*dbsqlc.Queries, dbsqlc.Machine) error) func() error {
	return func() error {
		return s.DB.InTx(t.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
			m, err := q.LockMachine(t.Context(), id)
			if err != nil {
				return err
			}
			return fn(q, m)
		})
	}
}

// A statement that fails is an error of the call, which changes nothing then: of nodes that move.
func TestAFailedStatementMovesNoNode(t *testing.T) {
	t.Parallel()
	s := storetest.NewFaulty(t)
	ctx, at := t.Context(), storetest.Now()
	a, h := host(t, s, "m-1")
	moves := func(to node.State, v nodestate.Move) storetest.Call {
		v.To = to
		return storetest.Call{Name: node.Name(v.To), Do: with(t, s, "m-1", func(q *dbsqlc.Queries, _ dbsqlc.Machine) error {
			return nodestate.MoveTo(ctx, q, "m-1", v, at)
		})}
	}
	fails := storetest.Call{
		Name: "a failed attempt",
		Do: with(t, s, "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
			return nodestate.InstallFailed(ctx, q, m, nodestate.Move{By: node.Workflow}, "why", "repave", at)
		}),
	}
	silent := func(since time.Time) storetest.Call {
		return storetest.Call{Name: "heartbeats", Do: func() error { return s.NodeStates.UpdateReachable(ctx, since, at) }}
	}
	storetest.Calls(t, s, silent(at.Add(time.Hour)))
	must(t, s.Sessions.FlushHeartbeats(ctx, map[string]time.Time{h.SessionID: at.Add(2 * time.Hour)}))
	storetest.Calls(t, s, silent(at.Add(time.Hour)))
	replica(t, s, "UPDATE machines SET node_state = 'enrolling', agent_id = $1", a.ID)
	storetest.Calls(
		t,
		s,
		storetest.Call{Name: "live", Do: with(t, s, "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
			return errOf(nodestate.AgentLive(ctx, q, m, at))
		})},
		storetest.Call{
			Name: "held",
			Do:   func() error { return errOf(nodestate.HeldByWorkflow(ctx, s.DB.Q, "m-1", node.Enrolling)) },
		},
		storetest.Call{Name: "admit", Do: func() error { return errOf(s.NodeStates.AdmitHealthy(ctx, at)) }},
		moves(node.Quarantined, nodestate.Move{By: node.Admin, User: "ann", Comment: "x"}),
		moves(node.Active, nodestate.Move{By: node.Admin, User: "ann", Comment: "x"}),
		moves(node.Retired, nodestate.Move{By: node.Admin, Purge: true}),
		moves(node.Offline, nodestate.Move{By: node.Admin}),
	)
	replica(t, s, "UPDATE machines SET node_state = 'installing', plan_id = 'reboot'")
	storetest.Calls(t, s, fails, fails, fails,
		moves(node.Pending, nodestate.Move{By: node.Admin, Force: true, Installs: true}))
	replica(t, s, "UPDATE machines SET node_state = 'installed'")
	storetest.Calls(t, s,
		moves(node.Active, nodestate.Move{By: node.Admin, User: "ann"}),
		moves(node.Deleted, nodestate.Move{By: node.Admin, Deleting: true, Purge: true}))
	if got := storetest.State(t, s, "m-1"); got != "deleted" {
		t.Errorf("the node is %s", got)
	}
}

// The same of what providers and inventories show.
func TestAFailedStatementOfAnObservation(t *testing.T) {
	t.Parallel()
	s := storetest.NewFaulty(t)
	ctx, at := t.Context(), storetest.Now()
	storetest.Register(t, s, "m-1")
	storetest.Register(t, s, "m-bmc")
	replica(t, s, `UPDATE machines SET spec = '{"provider": "maas", "site": "lab", "group": "g"}', node_state = 'active'
		WHERE machine_id = 'm-1'`)
	replica(t, s, `INSERT INTO node_groups (node_group, auto_promote, explicit_promotion, health_checks, updated_at)
		VALUES ('g', false, false, '{inventory,provider}', now())`)
	report(t, s, "m-1", `{"disks": []}`, false)
	reports := func(status maasstatus.Status, system string, seen time.Time) storetest.Call {
		o := &fleetv1.ProviderObservation{MachineId: "m-1", Provider: "maas", Reachable: true, Present: true,
			Status: int32(status), SystemId: system, SeenAt: timestamppb.New(seen)}
		return storetest.Call{Name: "an observation", Do: func() error {
			return s.DB.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
				return nodestate.RecordProvider(ctx, q, "lab", o, at)
			})
		}}
	}
	moves := func(to node.State, ended string) storetest.Call {
		return storetest.Call{Name: node.Name(to), Do: with(t, s, "m-1", func(q *dbsqlc.Queries, _ dbsqlc.Machine) error {
			return nodestate.MoveTo(ctx, q, "m-1", nodestate.Move{To: to, By: node.System, Ended: ended}, at)
		})}
	}
	reads := func(name, id string, fn func(*dbsqlc.Queries, dbsqlc.Machine) error) storetest.Call {
		return storetest.Call{Name: name, Do: with(t, s, id, fn)}
	}
	adopts := reads("adopt", "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
		return errOf(nodestate.AdoptDrift(ctx, q, m, at))
	})
	storetest.Calls(
		t,
		s,
		reports(maasstatus.Ready, "abc", at),
		moves(node.Quarantined, ""),
		moves(node.Active, ""),
		adopts,
		reports(maasstatus.Broken, "abc", at),
		reports(maasstatus.Deployed, "xyz", at),
		moves(node.Quarantined, "op-1"),
		reports(maasstatus.Ready, "abc", at.Add(-time.Second)),
		reports(maasstatus.Ready, "abc", at.Add(time.Second)),
		reads("health", "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
			return errOf(nodestate.HealthChecks(ctx, q, m, true))
		}),
		reads("failing", "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
			return errOf(nodestate.FailingChecks(ctx, q, m, true))
		}),
		reads("health of a BMC's", "m-bmc", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
			return errOf(nodestate.FailingChecks(ctx, q, m, true))
		}),
		reads("group", "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error { return errOf(nodestate.GroupOf(ctx, q, m)) }),
		reads("hardware", "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
			return errOf(nodestate.ObservedHardware(ctx, q, m.MachineID))
		}),
		reads("accelerator", "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
			has, err := nodestate.HasAccelerator(ctx, q, m.MachineID)
			if err != nil && has {
				t.Error("an inventory that cannot be read has an accelerator")
			}
			return err
		}),
		reads("provider", "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
			return errOf(nodestate.ObservedProviderState(ctx, q, m))
		}),
		reads("facts", "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
			return nodestate.ProviderFacts(ctx, q, m, &workflow.StageFacts{})
		}),
		reads("holds", "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error { return errOf(nodestate.Holds(ctx, q, m)) }),
		reads("install", "m-1", func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
			return nodestate.SetInstall(ctx, q, m, node.Install{Attempts: 1}, "x")
		}),
	)
}

// What cannot be read is an error, and not a machine without a policy, a place or an inventory.
func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ctx := t.Context()
	storetest.Register(t, s, "m-1")
	whole, err := s.DB.Q.GetMachine(ctx, "m-1")
	must(t, err)
	broken, driven := whole, whole
	broken.Spec, driven.Spec, driven.Provider = []byte("x"), []byte("x"), "maas"
	for name, err := range map[string]error{
		"a group":    errOf(nodestate.GroupOf(ctx, s.DB.Q, broken)),
		"checks":     errOf(nodestate.HealthChecks(ctx, s.DB.Q, broken, true)),
		"a failing":  errOf(nodestate.FailingChecks(ctx, s.DB.Q, broken, true)),
		"a region":   nodestate.ProviderFacts(ctx, s.DB.Q, driven, &workflow.StageFacts{}),
		"an arrival": errOf(nodestate.Arrive(ctx, s.DB.Q, broken, "", storetest.Now())),
	} {
		if err == nil {
			t.Errorf("%s is read", name)
		}
	}
	report(t, s, "m-1", `{"nics": 7}`, false)
	if has, err := nodestate.HasAccelerator(ctx, s.DB.Q, "m-1"); has || err == nil {
		t.Errorf("of an inventory that cannot be read, it has an accelerator: %t, %v", has, err)
	}
	for name, err := range map[string]error{
		"hardware":  errOf(nodestate.ObservedHardware(ctx, s.DB.Q, "m-1")),
		"checks":    errOf(nodestate.HealthChecks(ctx, s.DB.Q, whole, true)),
		"a failing": errOf(nodestate.FailingChecks(ctx, s.DB.Q, whole, true)),
	} {
		if err == nil {
			t.Errorf("of an inventory that cannot be read, %s is read", name)
		}
	}
}
