package pgtx_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/relay"
)

// life is what a site with several machines does at the store, from registration to results.
type life struct {
	t    *testing.T
	s    *store.Store
	name string
	seq  uint64
}

const lifeMachines = 5

func (l *life) machine(i int) string { return fmt.Sprintf("%s-%d", l.name, i) }

// live fails the test where any call has another answer than the truth: all of it happens once.
func (l *life) live() {
	t, s := l.t, l.s
	site := l.site()
	asks := l.asks(site)
	l.granted(asks[:1]) // alone
	l.granted(asks[1:]) // as a set
	var results []operationstore.Asked
	for _, a := range asks {
		g, ok := a.Event.(operation.GrantAsked)
		if !ok {
			t.Fatal("not an ask")
		}
		results = append(results, operationstore.Asked{OperationID: a.OperationID, Event: operation.Resulted{
			CommandID: g.CommandID, AgentID: site.ID, StateID: g.StateID, Outcome: operation.OutcomeFailed,
			Reason: "BMC_UNREACHABLE", Message: "of the test",
		}})
	}
	for _, d := range append(s.Operations.DecideAll(t.Context(), results[1:], storetest.Now()),
		s.Operations.DecideAll(t.Context(), results[:1], storetest.Now())...) {
		if d.Err != nil || d.Applied.Phase != operation.Failed || d.Applied.Decision.Op.Error.Code != "BMC_UNREACHABLE" {
			t.Errorf("a result: %v, %+v", d.Err, d.Applied)
		}
	}
	l.hosts()
}

// site is a site's agent with the machines of its site.
func (l *life) site() storetest.Enrolled {
	t, s := l.t, l.s
	site := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "site-" + l.name, Role: "site", Site: l.name})
	storetest.Open(t, s, site.Hello("st-1", "boot-1"))
	for i := range lifeMachines {
		if _, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: l.machine(i),
			Spec: &baremetalv1.MachineSpec{Provider: "fake", Site: l.name}}, "tester", storetest.Now()); err != nil {
			t.Fatal(err)
		}
		storetest.Maintenance(t, s, l.machine(i))
	}
	return site
}

// asks are those for the grants of new reboots, one a machine, which the site's agent sends together.
func (l *life) asks(site storetest.Enrolled) (asks []operationstore.Asked) {
	t, s := l.t, l.s
	for i := range lifeMachines {
		op := storetest.Start(t, s, operationstore.StartRequest{MachineID: l.machine(i), RequestID: fmt.Sprint("r-", l.seq),
			Type: fleet.Reboot})
		c := storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{}).Command
		if c == nil || c.ExecutorID != site.ID {
			t.Fatalf("%s: the site's agent is not asked: %+v", l.machine(i), c)
		}
		l.seq++
		ask := storetest.Ask(site, c, l.seq, 1)
		ask.Nonce = []byte(fmt.Sprintf("nonce %012d", l.seq))
		asks = append(asks, operationstore.Asked{OperationID: op.GetOperationId(), Event: ask})
	}
	return asks
}

func (l *life) granted(asks []operationstore.Asked) {
	l.t.Helper()
	for i, d := range l.s.Operations.DecideAll(l.t.Context(), asks, storetest.Now()) {
		if d.Err != nil || !d.Applied.Decision.Grant {
			l.t.Errorf("grant %d: %v, %+v", i, d.Err, d.Applied)
		}
	}
}

// hosts come back together, as after a start of their controller.
func (l *life) hosts() {
	t, s := l.t, l.s
	agents := make([]storetest.Enrolled, lifeMachines)
	for i := range agents {
		id := fmt.Sprintf("%s-host-%d", l.name, i)
		storetest.Register(t, s, id)
		agents[i] = storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-" + id, MachineID: id})
		storetest.Open(t, s, agents[i].Hello("st-1", "boot-1"))
	}
	for i, err := range storetest.Together(t, lifeMachines, func(ctx context.Context, i int) error {
		o, err := s.Sessions.OpenSession(ctx, agents[i].Hello("st-1", "boot-1"), storetest.Now())
		if err == nil && (o.Epoch != 2 || o.RolledBack || o.Cloned) {
			err = fmt.Errorf("opened as %+v", o)
		}
		return err
	}) {
		if err != nil {
			t.Errorf("session of host %d: %v", i, err)
		}
	}
}

// stored counts the rows that a life leaves, by table. seen reads past what was lost.
func (l *life) stored(seen *store.Store) string {
	of := l.name + "-%"
	out := ""
	for _, of := range []string{"machines WHERE machine_id", "operations WHERE target_id", "commands WHERE target_id",
		"audit_log WHERE target_id"} {
		out += fmt.Sprintf("%d in %s, ", storetest.Count(l.t, seen, "SELECT count(*) FROM "+of+" LIKE $1", l.name+"-%"), of)
	}
	return out + fmt.Sprintf(
		"%d events, %d agents, highest grant %d",
		storetest.Count(l.t, seen,
			"SELECT count(*) FROM operation_events JOIN operations USING (operation_id) WHERE operations.target_id LIKE $1", of),
		storetest.Count(l.t, seen, "SELECT count(*) FROM agents WHERE machine_id LIKE $1 OR site = $2", of, l.name),
		storetest.Count(
			l.t,
			seen,
			"SELECT max(last_grant_seq) FROM agent_states JOIN agents USING (agent_id) WHERE site = $1",
			l.name,
		),
	)
}

// Whatever COMMIT of a life loses its answer, each call has the answer that it would have had, nothing is
// stored twice, and no machine is fenced.
func TestACommitThatIsLost(t *testing.T) {
	direct := testkit.Database(t)
	seen := storetest.With(t, store.Config{URL: direct})
	storetest.Lease(t, seen)
	network, through, err := relay.ForDatabase(direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Close)
	s := storetest.With(t, store.Config{URL: through})
	undisturbed := &life{t: t, s: s, name: "undisturbed"}
	undisturbed.live()
	want := undisturbed.stored(seen)
	t.Log(want)
	lost := 0
	for n := 1; n == lost+1; n++ {
		before := network.Lost()
		network.LoseCommit(n, relay.LostAnswer)
		l := &life{t: t, s: s, name: fmt.Sprintf("lost-%d", n)}
		l.live()
		if got := l.stored(seen); got != want {
			t.Errorf("COMMIT %d: there are %s, and undisturbed %s", n, got, want)
		}
		for i := range lifeMachines {
			storetest.Intact(t, seen, l.machine(i))
		}
		lost += network.Lost() - before
		if t.Failed() {
			t.Fatalf("COMMIT %d was lost", n)
		}
	}
	if lost < 40 {
		t.Errorf("%d COMMITs of a life were lost", lost)
	}
}

// A COMMIT that never reaches the server is no unknown outcome: a call is run again until its tries are spent, then
// answered that nothing is stored. The members of a set are stored alone.
func TestACommitThatNeverArrives(t *testing.T) {
	network, through, err := relay.ForDatabase(testkit.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Close)
	s := storetest.With(t, store.Config{URL: through})
	storetest.Lease(t, s)
	l := &life{t: t, s: s, name: "l"}
	asks := l.asks(l.site())
	network.LoseCommit(1, relay.LostRequest)
	l.granted(asks)
	storetest.Register(t, s, "m-1")
	start := operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.EnterMaintenance, Actor: "tester"}
	network.LoseCommits(1, relay.LostRequest)
	if _, _, err := s.Operations.Start(t.Context(), start, storetest.Now()); pgtx.OutcomeUnknown(err) ||
		failure.ReasonOf(err) != "DATABASE_UNAVAILABLE" {
		t.Errorf("a start: %v", err)
	}
	if n := network.Lost(); n != 1+pgtx.MaxTries {
		t.Errorf("%d COMMITs were lost", n)
	}
	network.LoseCommit(pgtx.MaxTries-1, relay.LostRequest)
	for range pgtx.MaxTries {
		start.RequestID += "r"
		start.MachineID = storetest.Register(t, s, "m-"+start.RequestID).GetMachineId()
		if _, created, err := s.Operations.Start(t.Context(), start, storetest.Now()); !created || err != nil {
			t.Errorf("a start whose COMMIT is lost once: created %v, %v", created, err)
		}
	}
	if n := network.Lost(); n != 2+pgtx.MaxTries {
		t.Errorf("%d COMMITs were lost", n)
	}
}

// Where the database stays away after the COMMIT, each caller learns that the outcome is unknown, and that the
// controller is at fault. When it is back everything is asked again, and is answered as if nothing had been lost.
func TestAnOutcomeThatStaysUnknown(t *testing.T) {
	direct := testkit.Database(t)
	network, through, err := relay.ForDatabase(direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Close)
	s := storetest.With(t, store.Config{URL: through})
	pgtx.LimitStatus(s.DB, time.Millisecond)
	storetest.Lease(t, s)
	l := &life{t: t, s: s, name: "l"}
	site := l.site()

	network.LoseCommit(1, relay.LostServer)
	start := operationstore.StartRequest{MachineID: l.machine(0), RequestID: "lost", Type: fleet.Reboot, Actor: "tester"}
	_, _, err = s.Operations.Start(t.Context(), start, storetest.Now())
	if f := storetest.WantReason(t, err, pgtx.ReasonOutcomeUnknown); !pgtx.OutcomeUnknown(err) || !f.Retryable {
		t.Errorf("a start: %v", err)
	}
	network.Unblock()
	op, created, err := s.Operations.Start(t.Context(), start, storetest.Now())
	if err != nil || created {
		t.Fatalf("started again: created %v, %v", created, err)
	}
	if _, err := s.Operations.Cancel(t.Context(), op.GetOperationId(), "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}

	asks := l.asks(site)
	network.LoseCommit(1, relay.LostServer)
	for i, d := range s.Operations.DecideAll(t.Context(), asks, storetest.Now()) {
		if !pgtx.OutcomeUnknown(d.Err) || d.Applied != nil {
			t.Errorf("grant %d: %v, %+v", i, d.Err, d.Applied)
		}
	}
	network.Unblock()
	l.granted(asks[len(asks)-1:]) // the same ask, whose number is the highest
	for i := range asks {
		g, ok := asks[i].Event.(operation.GrantAsked)
		if !ok {
			t.Fatal("not an ask")
		}
		l.seq++
		g.Earlier, g.Seq, g.Nonce = append(g.Earlier, g.Seq), l.seq, []byte("the next")
		asks[i].Event = g
	}
	l.granted(asks)
	for i := range lifeMachines {
		storetest.Intact(t, s, l.machine(i))
	}
}

// One number is one ask. Another nonce under it is of a copy of the memory that was made before the ask.
func TestAnEqualNumberWithAnotherNonce(t *testing.T) {
	s := storetest.New(t)
	a, id, c := storetest.Rebooting(t, s, "m-1")
	first := storetest.Ask(a, c, 1, 1)
	first.Nonce = []byte("of the first")
	for range 2 {
		if d := storetest.Decide(t, s, id, first); !d.Decision.Grant {
			t.Fatalf("the same ask: %+v", d.Decision.Refusal)
		}
	}
	copied := first
	copied.Nonce = []byte("of a copy")
	d := storetest.Decide(t, s, id, copied)
	if d.Decision.Grant || d.Decision.Refusal.Reason != "AGENT_STATE_ROLLED_BACK" {
		t.Errorf("the same number with another nonce: %+v", d.Decision)
	}
}
