package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/engine"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/testkit"
)

const (
	beatEvery = 10 * time.Second
	// silenceTime is how long an agent may be silent: three heartbeats.
	silenceTime = 3 * beatEvery
	// comeBack is longer than agents need to come back after an outage.
	comeBack = 50 * time.Second
)

// outageRig is a small fleet on one database whose clock the test advances.
type outageRig struct {
	t      *testing.T
	store  *store.Store
	clocks *storetest.Clocks
	// controllers that run now.
	controllers []*outageController
	agents      []*outageAgent
	started     int
}

type outageController struct {
	id       string
	engine   *engine.Engine
	sessions *session.Registry
}

// outageAgent speaks to one controller.
type outageAgent struct {
	storetest.Enrolled
	nr      int
	session *session.Session
	on      *outageController
	dead    bool
}

func newOutageRig(t *testing.T, agents int) *outageRig {
	t.Helper()
	r := &outageRig{t: t}
	r.store, r.clocks = storetest.NewWithClock(t)
	_, _, err := r.store.Webhooks.CreateWebhook(t.Context(), webhookstore.WebhookSpec{ID: ids.New(ids.Webhook),
		URL: "https://receiver"}, webhookstore.SealedSecret{ID: "s", Sealed: []byte("s")}, "tester", r.clocks.Now())
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	for i := range agents {
		id := fmt.Sprintf("m-%d", i+1)
		storetest.Register(t, r.store, id)
		a := &outageAgent{
			Enrolled: storetest.Enrol(t, r.store, agentstore.NewToken{TokenID: "t-" + id, MachineID: id}),
			nr:       i,
		}
		r.agents = append(r.agents, a)
		r.connect(a, r.controllers[0])
		a.Arrived(t, r.store)
	}
	r.run(20*time.Second, 0)
	for _, f := range r.facts() {
		if f.NodeState != "active" || !f.Reachable || f.Events == 0 {
			t.Fatalf("before the outage: %+v", f)
		}
	}
	return r
}

// start adds a controller.
func (r *outageRig) start() *outageController {
	r.t.Helper()
	r.started++
	c := &outageController{id: fmt.Sprintf("ctl-%d", r.started), sessions: session.NewRegistry()}
	e, err := engine.New(engine.Config{
		Store: r.store, Sessions: c.sessions, Clock: r.clocks, Logger: testkit.Logger(r.t), ControllerID: c.id,
		Heartbeat: beatEvery,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	c.engine = e
	r.store.Operations.OnCreated(nil, nil)
	if err := e.RenewLease(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	if err := e.Listen(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.controllers = append(r.controllers, c)
	return c
}

// connect opens a session of the agent.
func (r *outageRig) connect(a *outageAgent, c *outageController) {
	r.t.Helper()
	h := a.Hello("st-1", "boot-1")
	h.ControllerID = c.id
	now := r.clocks.Now()
	o, err := r.store.Sessions.OpenSession(r.t.Context(), h, now)
	if err != nil {
		r.t.Fatal(err)
	}
	a.on = c
	a.session = session.New(r.t.Context(), session.Peer{AgentID: a.ID, SessionID: h.SessionID, MachineID: a.Machine,
		Role: "host", Epoch: o.Epoch}, now)
	c.sessions.Add(a.session)
}

// run lets time pass by the second. Agents without a session open one after delay and two seconds each, wherever a
// controller runs.
func (r *outageRig) run(d, delay time.Duration) {
	r.t.Helper()
	for s := range int(d / time.Second) {
		r.clocks.Advance(time.Second)
		passed := time.Duration(s+1) * time.Second
		for _, a := range r.agents {
			switch {
			case a.dead:
			case a.session.Context().Err() == nil && slices.Contains(r.controllers, a.on):
				if (s+a.nr)%int(beatEvery/time.Second) == 0 {
					a.session.Beat(r.clocks.Now())
				}
			case len(r.controllers) > 0 && passed >= delay+time.Duration(2*a.nr)*time.Second:
				r.connect(a, r.controllers[len(r.controllers)-1])
			}
		}
		for _, c := range r.controllers {
			if err := c.engine.Round(r.t.Context()); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// fact is what is said of a machine.
type fact struct {
	MachineID, NodeState string
	Reachable            bool
	Since                time.Time
	Events               int64
}

func (r *outageRig) facts() []fact {
	r.t.Helper()
	rows, err := r.store.DB.Pool().Query(r.t.Context(), `SELECT m.machine_id, m.node_state, c.status, c.last_transition,
			(SELECT count(*) FROM webhook_outbox o WHERE o.machine_id = m.machine_id AND o.kind <> 'updated')
		FROM machines m JOIN machine_conditions c ON c.machine_id = m.machine_id AND c.type = 'Reachable'
		ORDER BY m.machine_id`)
	if err != nil {
		r.t.Fatal(err)
	}
	facts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[fact])
	if err != nil || len(facts) != len(r.agents) {
		r.t.Fatalf("%d facts of %d machines: %v", len(facts), len(r.agents), err)
	}
	return facts
}

// unmoved fails where anything is said otherwise than before.
func (r *outageRig) unmoved(before []fact, when string) {
	r.t.Helper()
	now := r.facts()
	for i, f := range now {
		if !r.agents[i].dead && f != before[i] {
			r.t.Fatalf("%s: %+v, before %+v", when, f, before[i])
		}
	}
}

// outages are the ways in which all controllers of a fleet can be away for a time.
var outages = map[string]func(r *outageRig, d time.Duration){
	"killed": func(r *outageRig, d time.Duration) {
		r.controllers = nil
		r.run(d, 0)
		r.start()
	},
	"stopped": func(r *outageRig, d time.Duration) { r.clocks.Advance(d) },
	"without their database": func(r *outageRig, d time.Duration) {
		for range int(d / time.Second) {
			r.clocks.Advance(time.Second)
			for _, a := range r.agents {
				a.session.Beat(r.clocks.Now()) // it is heard as long as the session is open
			}
		}
	},
}

// TestAnOutageOfTheControllersAccusesNoAgent: after controllers were away nothing is said of any agent that comes back
// in its time. One that does not come back is silent by the time after the outage alone.
func TestAnOutageOfTheControllersAccusesNoAgent(t *testing.T) {
	for name, away := range outages {
		for _, d := range []time.Duration{5 * time.Second, 40 * time.Second, 300 * time.Second} {
			t.Run(fmt.Sprint(name, " for ", d), func(t *testing.T) {
				t.Parallel()
				r := newOutageRig(t, 6)
				before := r.facts()
				lost := r.agents[len(r.agents)-1]
				away(r, d)
				lost.dead = true // it died during the outage, and nothing has seen it
				for range 15 {
					r.run(time.Second, 0)
					r.unmoved(before, "while agents come back")
				}
				r.run(comeBack-15*time.Second, 0)
				r.unmoved(before, "when agents are back")
				if got := r.facts()[lost.nr]; got != before[lost.nr] {
					t.Errorf("an agent without its time to come back: %+v, before %+v", got, before[lost.nr])
				}
				r.run(silenceTime+10*time.Second, 0)
				r.unmoved(before, "later")
				if got := r.facts()[lost.nr]; got.Reachable || got.NodeState != "offline" {
					t.Errorf("an agent that has not come back: %+v", got)
				}
			})
		}
	}
}

// TestTheAgentsOfADeadControllerMayGoToAnother: another controller has listened all the time, and the agents of the one
// that died are silent from when they could reach it.
func TestTheAgentsOfADeadControllerMayGoToAnother(t *testing.T) {
	t.Parallel()
	r := newOutageRig(t, 6)
	r.start()
	r.run(10*time.Second, 0)
	before := r.facts()
	r.controllers = r.controllers[1:]
	lost := r.agents[len(r.agents)-1]
	lost.dead = true
	// They need longer to notice than an agent may be silent.
	r.run(silenceTime+5*time.Second, silenceTime-10*time.Second)
	r.unmoved(before, "while agents come back")
	if got := r.facts()[lost.nr]; got != before[lost.nr] {
		t.Errorf("an agent without its time to come back: %+v, before %+v", got, before[lost.nr])
	}
	r.run(comeBack+10*time.Second, 0)
	r.unmoved(before, "later")
	if got := r.facts()[lost.nr]; got.Reachable {
		t.Errorf("an agent that has not come back: %+v", got)
	}
}

// TestAnAgentThatDiesWhileControllersListen: without an outage an agent is silent by its heartbeats alone.
func TestAnAgentThatDiesWhileControllersListen(t *testing.T) {
	t.Parallel()
	r := newOutageRig(t, 2)
	before := r.facts()
	r.agents[1].dead = true
	r.run(silenceTime-beatEvery-time.Second, 0)
	if got := r.facts()[1]; got != before[1] {
		t.Errorf("too early: %+v", got)
	}
	r.run(beatEvery+5*time.Second, 0)
	if got := r.facts()[1]; got.Reachable || got.NodeState != "offline" {
		t.Errorf("not found: %+v", got)
	}
	r.unmoved(before, "the other one")
}
