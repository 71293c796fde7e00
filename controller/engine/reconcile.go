package engine

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/controller/engine/stuck"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/workflowstate"
	"github.com/ingot-metal/ingot/internal/task"
)

// reconciler compares what is with what should be. It takes no input and only opens operations or records observations,
// so that running it twice, or on several controllers at once, changes nothing more. It runs when it is signalled and
// on its period, whichever comes first: the signal makes it quick, the period makes it sure.
type reconciler struct {
	name  string
	every time.Duration
	on    signal
	run   func(context.Context) error
}

// signal wakes a reconciler. Any number of them before it looks are one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) fire() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// signals are what reconcilers wait for.
type signals struct {
	// heartbeats: a session has opened. The others: an operation has ended, or a node was moved.
	heartbeats, stuck, workflows, owners, conditions signal
	// changed: something that a client can see. revoked: a certificate. unheard: commands may have been missed. peers: a
	// controller has come or gone.
	changed, revoked, unheard, peers signal
	// room: a slot of a budget may be free, or an operation asks for one.
	room signal
	// position: another database server answers.
	position signal
}

func newSignals() signals {
	return signals{
		heartbeats: newSignal(), stuck: newSignal(), workflows: newSignal(), owners: newSignal(), conditions: newSignal(),
		changed: newSignal(), revoked: newSignal(), unheard: newSignal(), peers: newSignal(),
		room: newSignal(), position: newSignal(),
	}
}

func (s signals) sessionOpened() { s.heartbeats.fire() }

func (s signals) workEnded() {
	for _, one := range []signal{s.stuck, s.workflows, s.owners, s.conditions} {
		one.fire()
	}
}

// reconcilers are those of every controller.
func (e *Engine) reconcilers() []reconciler {
	return []reconciler{
		{"heartbeats", time.Second, e.signals.heartbeats, e.scan.heartbeats},
		{"compare the database's position", comparePeriod, e.signals.position, e.position.compare},
		{"look for what is stuck", stuck.Every, e.signals.stuck, e.stuck.Watch},
		{"compare workflows", 30 * time.Second, e.signals.workflows, e.repairs.compareWorkflows},
		{"give nodes an owner", 30 * time.Second, e.signals.owners, e.repairs.repairNodes},
		{"admit healthy nodes", healthEvery, newSignal(), e.repairs.admitHealthy},
		{"recompute conditions", time.Minute, e.signals.conditions, e.repairs.recomputeConditions},
		{"revocations", time.Second, e.signals.revoked, e.revocations.check},
		{"look for unheard commands", unheardEvery, e.signals.unheard, e.sender.resendUnanswered},
		{"look for moved sessions", movedEvery, newSignal(), e.scan.closeMovedSessions},
		{"look for other controllers", e.cfg.Lease / 3, e.signals.peers, e.peers.findPeers},
		{"forget controllers that are gone", forgetEvery, newSignal(), e.leases.forgetControllers},
		{"tidy jobs", tidyJobsEvery, newSignal(), e.scheduler.tidyJobs},
		{"end rescue assignments", time.Second, newSignal(), e.repairs.endRescues},
	}
}

func (e *Engine) startReconcilers(g *task.Group) {
	for _, r := range e.reconcilers() {
		g.Go(r.name, func(ctx context.Context) error { return e.reconcile(ctx, r) })
	}
}

// pause is how long a reconciler rests at least between two looks, however often it is signalled.
const pause = time.Second

func (e *Engine) reconcile(ctx context.Context, r reconciler) error {
	t := e.clock.NewTicker(r.every)
	defer t.Stop()
	w := work{what: r.name}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		case <-r.on:
		}
		e.attempt(ctx, &w, r.run)
		if r.every <= pause {
			continue // its own period is no slower than any signal
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.clock.After(pause):
		}
	}
}

// repairs reconcile what is stored of machines with what follows from it.
type repairs struct {
	common
	nodes          *nodestore.Store
	nodestates     *nodestate.Store
	operations     *operationstore.Store
	workflowstates *workflowstate.Store
	decisions      *decisions
	changes        *changes
	// violations that have been reported, by workflow; only their loop reads it.
	violations map[string]bool
}

// ownerGrace is how long a node may be in a state of work without an owner before the reconciler takes it out of there:
// a controller of an older version may be about to give it one.
const ownerGrace = time.Minute

// repairNodes takes nodes out of states that stand for work without an operation. By what this version writes there are
// none; an older one, or a restored database, may have left some.
func (r *repairs) repairNodes(ctx context.Context) error {
	now := r.clock.Now()
	moved, err := r.nodes.RepairOwnerless(ctx, now.Add(-ownerGrace), now)
	for _, m := range moved {
		r.log.Warn("a node stood for work that no operation did", "machine_id", m.MachineID, "from", m.From, "to", m.To,
			"operation_id", m.OperationID)
	}
	if len(moved) > 0 {
		r.changes.publish()
	}
	return err
}

// healthEvery is how long a node that has come to pass its health checks waits at most to become active.
const healthEvery = 2 * time.Second

// admitHealthy makes the nodes active that have come to pass the health checks of their groups.
func (r *repairs) admitHealthy(ctx context.Context) error {
	n, err := r.nodestates.AdmitHealthy(ctx, r.clock.Now())
	if n > 0 {
		r.log.Info("nodes have passed their health checks", "machines", n)
		r.changes.publish()
	}
	return err
}

// recomputeConditions sets the conditions that follow from a node's state.
func (r *repairs) recomputeConditions(ctx context.Context) error {
	n, err := r.nodes.RecomputeConditions(ctx, r.clock.Now())
	if n > 0 {
		r.log.Warn("conditions did not follow the node's state", "machines", n)
		r.changes.publish()
	}
	return err
}

// compareWorkflows reports nodes whose state does not go with the workflow that holds them. It changes nothing:
// an operator decides which of the two is wrong.
func (r *repairs) compareWorkflows(ctx context.Context) error {
	found, err := r.workflowstates.WorkflowViolations(ctx)
	if err != nil {
		return err
	}
	now := map[string]bool{}
	for _, v := range found {
		now[v.WorkflowID+v.Text] = true
		if !r.violations[v.WorkflowID+v.Text] {
			r.log.Warn("node and workflow disagree", "workflow_id", v.WorkflowID, "machine_id", v.MachineID, "reason", v.Text)
		}
	}
	r.violations = now
	return nil
}

// claimContestable is how long a rescue system that nothing but its place on the network proves can be contested. It is
// longer than slow firmware takes from power-on to the network.
const claimContestable = 10 * time.Minute

// endRescues ends the assignments of rescue systems that have done their work.
func (r *repairs) endRescues(ctx context.Context) error {
	now := r.clock.Now()
	gone, err := r.operations.EndRescues(ctx, now.Add(-claimContestable), now)
	if err != nil {
		return err
	}
	r.decisions.revoked(ctx, gone)
	return nil
}
