package main

import (
	"context"
	"slices"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/kill/judge"
)

// again is the pause of a reader after a failure.
const again = 100 * time.Millisecond

// events are the events of all operations as one watcher received them.
type events struct {
	mu    sync.Mutex
	all   []check.Event
	ended map[string]bool
}

func (e *events) add(x check.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, x)
	if e.ended == nil {
		e.ended = map[string]bool{}
	}
	e.ended[x.Operation] = e.ended[x.Operation] || ended(x.Phase)
}

// saw reports whether the end of an operation has come.
func (e *events) saw(operation string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended[operation]
}

func (e *events) received() []check.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// watchOperations follows the events of all operations. A broken stream goes on at the cursor, at the other controller.
func (f *fleet) watchOperations(ctx context.Context) {
	cursor := ""
	for i := 0; ctx.Err() == nil; i++ {
		p := f.controllers[i%len(f.controllers)]
		stream, err := p.operations().WatchOperations(ctx,
			&baremetalv1.WatchOperationsRequest{Cursor: cursor, FromBeginning: cursor == ""})
		for err == nil {
			var e *baremetalv1.OperationEvent
			if e, err = stream.Recv(); err == nil {
				cursor = e.GetCursor()
				f.events.add(check.Event{At: f.since(), Operation: e.GetSnapshot().GetOperationId(), Seq: e.GetSeq(),
					Kind: e.GetKind(), Phase: e.GetSnapshot().GetPhase().String()})
			}
		}
		program.Rest(ctx, again)
	}
}

const (
	// askEvery is how often the explanations of the machines in ATTENTION are read while faults strike.
	askEvery = time.Second
	// askLimit is how long that may take, and askFor how many machines are explained at once: each costs many queries.
	askLimit = 15 * time.Second
	askFor   = 10
)

// askWhile reads why machines need a person while faults strike.
func (f *fleet) askWhile(ctx context.Context) {
	token := ""
	for i := 0; ctx.Err() == nil; i++ {
		program.Rest(ctx, askEvery)
		token = f.ask(ctx, f.controllers[i%len(f.controllers)], token)
	}
}

// ask reads a page of explanations and returns the token of the next; empty for the first.
func (f *fleet) ask(ctx context.Context, p *controllerProgram, token string) string {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	r, err := p.machines().ExplainMachines(ctx, &baremetalv1.ExplainMachinesRequest{PageSize: askFor, PageToken: token})
	if err != nil {
		return "" // nothing was claimed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.since()
	for _, m := range r.GetMachines() {
		f.asked = append(f.asked, judge.Explanation{At: at, Live: true, Machine: m.GetMachine(), Answer: m.GetExplanation()})
	}
	for _, c := range r.GetSharedCauses() {
		f.asked = append(f.asked, judge.Explanation{At: at, Live: true, Shared: c})
	}
	return r.GetNextPageToken()
}
