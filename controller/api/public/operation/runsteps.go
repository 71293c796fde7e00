package operation

import (
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/store/operationlog"
)

// stepsAt returns the steps of a run as they were right after the last of its events that are given, oldest first. now
// are the steps as they are: a step that was in another state then has only what the events tell of it.
func stepsAt(now []*baremetalv1.StepStatus, events []operationlog.Event) []*baremetalv1.StepStatus {
	then := make([]*baremetalv1.StepStatus, 0, len(now))
	byName := map[string]*baremetalv1.StepStatus{}
	for _, s := range now {
		was := &baremetalv1.StepStatus{Name: s.GetName(), Kind: s.GetKind(), State: baremetalv1.StepStatus_WAITING}
		then, byName[s.GetName()] = append(then, was), was
	}
	for _, e := range events {
		if s := byName[e.Step]; s != nil {
			follow(s, e)
		}
	}
	for i, s := range now {
		if was := then[i]; was.GetState() == s.GetState() && was.GetRetryCount() >= s.GetRetryCount() {
			then[i] = s
		}
	}
	return then
}

// follow makes of a step what it was after an event.
func follow(s *baremetalv1.StepStatus, e operationlog.Event) {
	switch e.Kind {
	case "step_started":
		s.State, s.StartedAt = baremetalv1.StepStatus_RUNNING, service.Stamp(e.TS)
	case "step_succeeded":
		s.State, s.FinishedAt = baremetalv1.StepStatus_SUCCEEDED, service.Stamp(e.TS)
	case "step_retrying":
		s.RetryCount++
	case "step_failed":
		s.State, s.FinishedAt, s.Message = baremetalv1.StepStatus_FAILED, service.Stamp(e.TS), e.Message
	case "canceled":
		if s.GetState() == baremetalv1.StepStatus_RUNNING { // it is the step that the cancel has stopped
			s.State, s.FinishedAt, s.Message = baremetalv1.StepStatus_FAILED, service.Stamp(e.TS), e.Message
		}
	}
}
