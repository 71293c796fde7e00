// Package spans tells what happens to operations as spans of their traces: the jobs that evaluate them, the decisions
// that change them, their commands, and their ends. What a span is called and holds stands in internal/obs/traces.
package spans

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/obs/traces"
)

// Recorder writes the spans of one controller. A nil one writes none.
type Recorder struct {
	tracer       *traces.Tracer
	controllerID string
	clock        clock.Clock
}

// New makes a Recorder, nil where there is no tracer.
func New(t *traces.Tracer, controllerID string, c clock.Clock) *Recorder {
	if t == nil {
		return nil
	}
	return &Recorder{t, controllerID, c}
}

type jobKey struct{}

// Job begins the span of a job that evaluates an operation. Spans of decisions under the returned context are its
// children. ended writes it.
func (r *Recorder) Job(
	ctx context.Context, operationID string, attempt int,
) (job context.Context, ended func(error)) {
	if r == nil {
		return ctx, nothing
	}
	place, ok := r.tracer.Operation(operationID)
	if !ok {
		return ctx, nothing
	}
	id, start := traces.NewSpanID(), r.clock.Now()
	return context.WithValue(ctx, jobKey{}, place.Below(id)), func(err error) {
		r.tracer.Record(place, traces.Span{
			Name: traces.Job, ID: id, Kind: traces.Consumer, Start: start, End: r.clock.Now(),
			Fault: failure.ReasonOf(err), Attributes: map[traces.Attribute]string{
				traces.OperationID: operationID, traces.Attempt: strconv.Itoa(attempt), traces.ControllerID: r.controllerID,
			},
		})
	}
}

func nothing(error) {}

// Applied writes what a decision has come to, which is committed: the transition, the commands that it has ended, and
// the operation if that has. began is when the decision was begun; zero where that is not known.
func (r *Recorder) Applied(ctx context.Context, a *operationstore.Applied, began time.Time) {
	if r == nil || a == nil || !a.Decision.Changed {
		return
	}
	place, ok := r.tracer.Operation(a.OperationID)
	if !ok {
		return
	}
	now := r.clock.Now()
	r.transition(ctx, place, a, began, now)
	for _, c := range a.Decision.Commands {
		r.command(place, a, c, now)
	}
	if a.Decision.OpChanged && operation.IsTerminal(a.Phase) {
		r.operation(a)
	}
}

// transition stands below the job that has decided, or below the command whose agent has caused it.
func (r *Recorder) transition(
	ctx context.Context, place traces.Place, a *operationstore.Applied, began, now time.Time,
) {
	if began.IsZero() {
		began = now
	}
	op := a.Decision.Op
	s := traces.Span{
		Name: traces.Transition, Start: began, End: now,
		Attributes: map[traces.Attribute]string{
			traces.OperationID: a.OperationID, traces.MachineID: a.MachineID, traces.ControllerID: r.controllerID,
			traces.Phase: string(a.Phase), traces.Stage: op.CurrentStage, traces.WaitReason: op.WaitReason,
		},
	}
	if a.Command != nil {
		s.Attributes[traces.CommandID] = a.Command.ID
		s.Attributes[traces.CommandState] = string(a.Command.State)
	}
	for _, n := range a.Decision.Notes {
		s.Events = append(s.Events, traces.Event{Name: n.Kind, At: began, Attributes: map[traces.Attribute]string{
			traces.Step: n.Step, traces.Phase: string(n.Phase),
		}})
	}
	if job, ok := ctx.Value(jobKey{}).(traces.Place); ok {
		place = job
	} else if a.Command != nil && a.Command != a.Decision.NewCommand {
		place = place.Below(traces.SpanOf(traces.Command, a.Command.ID))
	}
	r.tracer.Record(place, s)
}

// command writes the way of a command that was acknowledged now, and one of which nothing more can come. One that an
// operator settles was written when it became unknown.
func (r *Recorder) command(place traces.Place, a *operationstore.Applied, c *operation.Command, now time.Time) {
	if c.SentAt.IsZero() || c.SettledBy != "" {
		return
	}
	about := map[traces.Attribute]string{
		traces.OperationID: a.OperationID, traces.MachineID: a.MachineID, traces.CommandID: c.ID,
		traces.CommandKind: string(c.Kind), traces.CommandState: string(c.State), traces.AgentID: c.ExecutorID,
		traces.Attempt: strconv.Itoa(c.Attempt), traces.ControllerID: r.controllerID,
	}
	id := traces.SpanOf(traces.Command, c.ID)
	if AckedNow(c) {
		r.tracer.Record(place.Below(id), traces.Span{
			Name: traces.Dispatch, Kind: traces.Producer, Start: c.SentAt, End: c.AckedAt, Attributes: about,
		})
	}
	if !operation.IsFinalCommand(c.State) {
		return
	}
	s := traces.Span{Name: traces.Command, Of: string(c.Kind), ID: id, Kind: traces.Client, Start: c.SentAt,
		End: c.FinishedAt, Attributes: about}
	if s.End.IsZero() {
		s.End = now
	}
	if c.Outcome != operation.OutcomeSucceeded {
		s.Fault = cmp.Or(c.Reason, string(c.Outcome), string(c.State))
	}
	about[traces.Outcome], about[traces.Reason] = string(c.Outcome), c.Reason
	for name, at := range map[string]time.Time{"acknowledged": c.AckedAt, "granted": c.GrantedAt, "started": c.ClaimedAt} {
		if !at.IsZero() {
			s.Events = append(s.Events, traces.Event{Name: name, At: at})
		}
	}
	r.tracer.Record(place, s)
}

// AckedNow reports whether the decision that changed the command was about its first acknowledgement, or about a
// request for a grant that came before one.
func AckedNow(c *operation.Command) bool {
	return c.State == operation.Acked ||
		c.State == operation.Granted && c.AckedAt.Equal(c.GrantedAt) && c.ClaimedAt.IsZero()
}

// operation writes the span of the whole operation.
func (r *Recorder) operation(a *operationstore.Applied) {
	s := traces.Span{
		Name: traces.Operation, Of: string(a.Type), ID: traces.SpanOf(traces.Operation, a.OperationID),
		Start: a.CreatedAt, End: a.FinishedAt, Attributes: map[traces.Attribute]string{
			traces.OperationID: a.OperationID, traces.MachineID: a.MachineID, traces.OperationType: string(a.Type),
			traces.Outcome: string(a.Phase), traces.ControllerID: r.controllerID,
		},
	}
	if err := a.Decision.Op.Error; err != nil {
		s.Fault = err.Code
		s.Attributes[traces.Reason] = err.Code
	}
	r.tracer.Record(traces.RootPlace(a.OperationID), s)
}
