package rollout

// Action is what a person does to a rollout.
type Action string

// The actions.
const (
	Approve Action = "approve"
	Pause   Action = "pause"
	Resume  Action = "resume"
	Cancel  Action = "cancel"
)

// Actions are all of them.
func Actions() []Action { return []Action{Approve, Pause, Resume, Cancel} }

// Outcome of an action: the next state, or one of the API's reasons for which it is refused.
type Outcome struct {
	To      State
	Refused string
}

const (
	ended       = "ROLLOUT_ENDED"
	notApproved = "ROLLOUT_NOT_APPROVED"
	stopped     = "ROLLOUT_STOPPED"
)

// table is every action in every state. A repeat changes nothing.
var table = map[State]map[Action]Outcome{
	AwaitingApproval: {Approve: {To: Running}, Pause: {Refused: notApproved}, Resume: {Refused: notApproved},
		Cancel: {To: Stopping}},
	Running: {Approve: {To: Running}, Pause: {To: Paused}, Resume: {To: Running}, Cancel: {To: Stopping}},
	Paused:  {Approve: {To: Paused}, Pause: {To: Paused}, Resume: {To: Running}, Cancel: {To: Stopping}},
	Stopping: {Approve: {Refused: stopped}, Pause: {Refused: stopped}, Resume: {Refused: stopped},
		Cancel: {To: Stopping}},
	Succeeded: {Approve: {Refused: ended}, Pause: {Refused: ended}, Resume: {Refused: ended}, Cancel: {Refused: ended}},
	CompletedWithFailures: {Approve: {Refused: ended}, Pause: {Refused: ended}, Resume: {Refused: ended},
		Cancel: {Refused: ended}},
	Failed:   {Approve: {Refused: ended}, Pause: {Refused: ended}, Resume: {Refused: ended}, Cancel: {Refused: ended}},
	Canceled: {Approve: {Refused: ended}, Pause: {Refused: ended}, Resume: {Refused: ended}, Cancel: {To: Canceled}},
}

// Act answers an action.
func Act(s State, a Action) Outcome { return table[s][a] }
