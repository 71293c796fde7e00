package node

import "slices"

// table is every change that may happen. A pair of states and a trigger stand in it once.
var table = complete([]Transition{
	// The netboot path.
	{From: Discovered, To: Pending, Triggers: []Trigger{Admin}},
	{From: Pending, To: Installing, Triggers: []Trigger{NodeReport, Workflow}},
	{From: Installing, To: Installed, Triggers: []Trigger{NodeReport, Workflow}},
	{From: Installing, To: InstallFailed, Triggers: []Trigger{NodeReport, Workflow}, Guard: AttemptsSpent},
	// Its installation has ended, and attempts are left: it has no worker, and waits for its installation again.
	{From: Installing, To: Pending, Triggers: []Trigger{Workflow, System}},
	{From: InstallFailed, To: Pending, Triggers: []Trigger{Admin}, Guard: ForcedNewPlan},
	{From: Installed, To: Active, Triggers: []Trigger{Admin, System, Workflow}, Guard: Idle},
	// Another image before anybody has verified the one before.
	{From: Installed, To: Pending, Triggers: []Trigger{Workflow}},

	// The adoption path. A token is issued for a registered machine, whose agent enrols with it.
	{From: Discovered, To: BootstrapIssued, Triggers: []Trigger{Admin}},
	{From: BootstrapIssued, To: Enrolling, Triggers: []Trigger{Admin, System, Workflow}},
	{From: Enrolling, To: Active, Triggers: []Trigger{System, Workflow}},
	{From: Enrolling, To: Quarantined, Triggers: []Trigger{System, Workflow}},

	// In life.
	{From: Active, To: Offline, Triggers: []Trigger{System}},
	{From: Offline, To: Active, Triggers: []Trigger{System}},
	{From: Active, To: Quarantined, Triggers: []Trigger{System, Workflow}},
	{From: Offline, To: Quarantined, Triggers: []Trigger{System, Workflow}},
	{From: Quarantined, To: Active, Triggers: []Trigger{System}, Guard: CameFrom},
	{From: Active, To: Reprovision, Triggers: []Trigger{Admin, Workflow}},
	{From: Reprovision, To: Pending, Triggers: []Trigger{Workflow, System}},
	{From: Active, To: Deprovisioning, Triggers: []Trigger{Admin, Workflow}},
	{From: Deprovisioning, To: Retired, Triggers: []Trigger{Workflow}},
	// The erasure has ended before anything of it was begun.
	{From: Deprovisioning, To: Active, Triggers: []Trigger{Workflow}},
	{From: Active, To: Migrating, Triggers: []Trigger{Admin, Workflow}},
	{From: Migrating, To: Active, Triggers: []Trigger{Workflow}},

	// The way out.
	{From: Active, To: Draining, Triggers: []Trigger{Admin, Workflow}},
	{From: Offline, To: Draining, Triggers: []Trigger{Admin, Workflow}},
	{From: Quarantined, To: Draining, Triggers: []Trigger{Admin, Workflow}},
	{From: Draining, To: Retired, Triggers: []Trigger{Workflow}},
	{From: Draining, To: Offline, Triggers: []Trigger{Admin, Workflow, System}, Guard: Idle},
	{From: Retired, To: Offline, Triggers: []Trigger{Admin}, Guard: Idle},
	{From: Retired, To: Removing, Triggers: []Trigger{Workflow}},
	{From: Removing, To: Retired, Triggers: []Trigger{Workflow, System}},
	{From: Removing, To: Deleted, Triggers: []Trigger{Workflow}, Guard: Erased},
})

// quarantinable are the further states from which a node is taken out of all work when two machines answer in its name:
// until an operator has identified them, neither may be acted upon, however far its life has come.
var quarantinable = []State{Discovered, BootstrapIssued, Pending, Installing, InstallFailed, Installed, Reprovision,
	Deprovisioning, Migrating, Draining}

// complete adds what holds for every state, and marks the rows whose target stands for work.
func complete(rows []Transition) []Transition {
	for _, s := range quarantinable {
		rows = append(rows, Transition{From: s, To: Quarantined, Triggers: []Trigger{System}})
	}
	for _, s := range States() {
		if s == Deleted {
			continue
		}
		rows = allow(rows, s, Deleted, PurgedByDelete)
		if s != Retired {
			rows = allow(rows, s, Retired, Purged)
		}
		if s != Quarantined {
			rows = allow(rows, s, Quarantined, Commented)
		}
		if Resting(s) && s != Retired {
			rows = allow(rows, Quarantined, s, CameFrom)
		}
	}
	for i := range rows {
		rows[i].Work = InProgress(rows[i].To)
	}
	return rows
}

// allow lets an admin make the change too. A guard that the row has already holds for its other triggers alone, so the
// admin's change is a row of its own.
func allow(rows []Transition, from, to State, g Guard) []Transition {
	return append(slices.Clip(rows), Transition{From: from, To: to, Triggers: []Trigger{Admin}, Guard: g})
}
