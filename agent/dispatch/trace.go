package dispatch

import (
	"context"
	"strconv"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/internal/obs/traces"
)

// traceCommand writes the span of the whole work on a command. What was done before a restart stands below it too: its
// id follows from that of the command.
func (d *Dispatcher) traceCommand(j *job, r executor.Result) {
	place, ok := d.cfg.Traces.Follow(j.spec.GetTraceparent())
	if !ok {
		return
	}
	s := d.span(j, traces.Agent, j.stored.ReceivedAt, r)
	s.Of, s.ID = kindOf(j.spec), traces.SpanOf(traces.Agent, j.id)
	s.Kind = traces.Server
	d.cfg.Traces.Record(place, s)
}

// trace writes the span of a part of the work that has ended. It has the command's result, an error, or neither.
func (d *Dispatcher) trace(j *job, n traces.Name, began time.Time, r executor.Result, err error) {
	place, ok := d.cfg.Traces.Follow(j.spec.GetTraceparent())
	if !ok {
		return
	}
	s := d.span(j, n, began, r)
	if err != nil {
		s.Fault = "INTERRUPTED" // the run that goes on writes the whole span
	}
	d.cfg.Traces.Record(place.Below(traces.SpanOf(traces.Agent, j.id)), s)
}

func (d *Dispatcher) executeTraced(
	ctx context.Context, j *job, exec executor.Executor, a ask,
) (executor.Result, error) {
	began := d.cfg.Clock.Now()
	r, err := d.execute(ctx, j, exec, a)
	d.trace(j, traces.Execute, began, r, err)
	return r, err
}

func (d *Dispatcher) span(j *job, n traces.Name, began time.Time, r executor.Result) traces.Span {
	s := traces.Span{
		Name: n, Start: began, End: d.cfg.Clock.Now(), Attributes: map[traces.Attribute]string{
			traces.OperationID: j.spec.GetOperationId(), traces.MachineID: j.spec.GetTargetId(), traces.CommandID: j.id,
			traces.CommandKind: kindOf(j.spec), traces.Step: j.spec.GetStep(), traces.AgentID: d.cfg.AgentID,
			traces.Attempt: strconv.Itoa(int(j.spec.GetAttempt())),
		},
	}
	if r.Outcome == fleetv1.CommandResult_OUTCOME_UNSPECIFIED {
		return s
	}
	s.Attributes[traces.Outcome] = r.Outcome.String()
	if r.Outcome != fleetv1.CommandResult_SUCCEEDED {
		s.Fault = r.Outcome.String()
	}
	if r.Reason != 0 {
		s.Fault = r.Reason.String()
		s.Attributes[traces.Reason] = s.Fault
	}
	return s
}

// kindOf is the name of the command's action.
func kindOf(spec *fleetv1.CommandSpec) string {
	m := spec.ProtoReflect()
	if field := m.WhichOneof(m.Descriptor().Oneofs().ByName("action")); field != nil {
		return string(field.Name())
	}
	return ""
}
