package rolling

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// traffic is steady work on some machines through several clients, and a watch. Calls that fail with a code that is
// documented as one to repeat are repeated; any other fails the test.
type traffic struct {
	t        *testing.T
	r        *harness.Trio
	machines []*harness.Machine
	conns    []*grpc.ClientConn
	ctx      context.Context
	stop     context.CancelFunc
	done     sync.WaitGroup

	mu      sync.Mutex
	phase   string
	took    map[string][]time.Duration // of operations, by the phase in which they ended
	ended   map[string]stretch         // by operation
	kills   []kill
	repeats map[string]map[string]int // by phase and reason
	refused int                       // calls that failed as none should
	seen    map[string]bool
	events  map[string][]*baremetalv1.OperationEvent // by operation
}

// stretch is when an operation was asked for, and when it was seen to have ended.
type stretch struct {
	machine      string
	begun, ended time.Time
}

// kill is when a controller was killed.
type kill struct {
	who string
	at  time.Time
}

// killed notes that a controller was.
func (l *traffic) killed(i int, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kills = append(l.kills, kill{fmt.Sprint("controller ", i), at})
}

// standing is a phase in which a controller stands still: there is no promise how soon that is detected.
const standing = "standing still"

// startTraffic makes machines and works them until end.
func startTraffic(t *testing.T, r *harness.Trio, machines int) *traffic {
	t.Helper()
	l := &traffic{t: t, r: r, phase: "calm", took: map[string][]time.Duration{}, ended: map[string]stretch{},
		repeats: map[string]map[string]int{}, seen: map[string]bool{},
		events: map[string][]*baremetalv1.OperationEvent{}}
	l.ctx, l.stop = context.WithCancel(t.Context())
	for range 3 {
		conn, err := r.Dial()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		l.conns = append(l.conns, conn)
	}
	for range machines {
		l.machines = append(l.machines, r.NewMachine(t, harness.MachineOptions{Delay: 50 * time.Millisecond}))
	}
	for _, m := range l.machines {
		m.WaitConnected()
		rig.Maintenance(t, r.Client, m.ID)
	}
	l.done.Go(l.watch)
	for i, m := range l.machines {
		l.done.Go(func() {
			l.work(m, baremetalv1.NewMachineServiceClient(l.conns[i%3]), baremetalv1.NewOperationServiceClient(l.conns[(i+1)%3]))
		})
	}
	t.Cleanup(l.end)
	return l
}

// enter names what happens from now on.
func (l *traffic) enter(phase string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = phase
}

// end lets the operations under way end.
func (l *traffic) end() {
	l.stop()
	l.done.Wait()
}

func (l *traffic) work(
	m *harness.Machine, machines baremetalv1.MachineServiceClient, operations baremetalv1.OperationServiceClient,
) {
	for i := 0; l.ctx.Err() == nil; i++ {
		begun := time.Now()
		op, ok := repeated(l, machines.RebootMachine, &baremetalv1.RebootMachineRequest{
			MachineId: m.ID, RequestId: fmt.Sprint("rolling-", i), TimeoutSeconds: rig.PatientTime,
		})
		for ok && !harness.Ended(op) {
			<-time.After(20 * time.Millisecond)
			op, ok = repeated(l, operations.GetOperation, &baremetalv1.GetOperationRequest{OperationId: op.GetOperationId()})
		}
		if !ok {
			return
		}
		if op.GetPhase() != rig.Succeeded {
			l.t.Errorf("operation %s ended %s with %v", op.GetOperationId(), op.GetPhase(), op.GetError())
		}
		l.mu.Lock()
		l.took[l.phase] = append(l.took[l.phase], time.Since(begun))
		l.ended[op.GetOperationId()] = stretch{m.ID, begun, time.Now()}
		l.mu.Unlock()
		<-time.After(100 * time.Millisecond)
	}
}

// repeated makes a call until it is answered. It repeats only the errors that docs/reference/api.md marks as
// repeatable.
func repeated[A, R any](l *traffic, call func(context.Context, A, ...grpc.CallOption) (R, error), request A) (R, bool) {
	limit := time.Now().Add(time.Minute)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		out, err := call(ctx, request)
		cancel()
		if err == nil {
			return out, true
		}
		if !l.passes(err) || time.Now().After(limit) {
			l.t.Errorf("%T: %v", request, err)
			return out, false
		}
		<-time.After(50 * time.Millisecond)
	}
}

// passes reports whether the documentation has a client repeat a call that has failed so.
func (l *traffic) passes(err error) bool {
	code := status.Code(err)
	reason := failure.ReasonOf(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.repeats[l.phase] == nil {
		l.repeats[l.phase] = map[string]int{}
	}
	l.repeats[l.phase][strings.TrimSpace(code.String()+" "+reason)]++
	if code == codes.Unavailable || code == codes.ResourceExhausted || code == codes.DeadlineExceeded &&
		l.phase == standing {
		return true
	}
	l.refused++
	return false
}

// watch follows all operations, going on from the last cursor wherever it is cut off, and holds that nothing comes
// twice.
func (l *traffic) watch() {
	cursor := ""
	for l.ctx.Err() == nil {
		stream, err := l.r.Operations().WatchOperations(l.ctx, &baremetalv1.WatchOperationsRequest{Cursor: cursor})
		for err == nil {
			var e *baremetalv1.OperationEvent
			if e, err = stream.Recv(); err != nil {
				break
			}
			cursor = e.GetCursor()
			l.saw(e)
		}
		if l.ctx.Err() == nil && !l.passes(err) {
			l.t.Errorf("watch: %v", err)
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (l *traffic) saw(e *baremetalv1.OperationEvent) {
	if e.GetKind() == "current" {
		return // the state that a watch begins with
	}
	key := fmt.Sprint(e.GetSnapshot().GetOperationId(), " ", e.GetSeq())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[key] {
		l.t.Errorf("event %s came twice", key)
	}
	l.seen[key] = true
	l.events[e.GetSnapshot().GetOperationId()] = append(l.events[e.GetSnapshot().GetOperationId()], e)
	if harness.Ended(e.GetSnapshot()) {
		l.seen[e.GetSnapshot().GetOperationId()] = true
	}
}

// tell shows what an operation has waited for, as the watch has seen it: each event at its time since a moment.
func (l *traffic) tell(id string, since time.Time) {
	var b strings.Builder
	for _, e := range l.events[id] {
		fmt.Fprintf(&b, "\n  %8v %s %s %s %s", milli(e.GetTs().AsTime().Sub(since)), e.GetKind(), e.GetStep(), e.GetMessage(),
			e.GetSnapshot().GetWaitReason())
	}
	fmt.Fprintf(&b, "\n  %8v the client has seen its end", milli(l.ended[id].ended.Sub(since)))
	l.t.Logf("%s, begun %v:%s", id, milli(l.ended[id].begun.Sub(since)), b.String())
}

// judge ends the traffic and compares the history with the promises: every operation has ended within the limits, none
// was lost, none was done twice, and the watch has seen each.
func (l *traffic) judge(limits limits) {
	l.t.Helper()
	missing := func() (out []string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for id := range l.ended {
			if !l.seen[id] {
				out = append(out, id)
			}
		}
		return out
	}
	limit := time.Now().Add(rig.Soon)
	l.mu.Lock()
	finished := len(l.ended)
	l.mu.Unlock()
	for len(missing()) > 0 && time.Now().Before(limit) {
		<-time.After(50 * time.Millisecond)
	}
	if m := missing(); len(m) > 3 { // of those that end right now
		l.t.Errorf("the watch has not seen %d of %d operations end", len(m), finished)
	}
	l.end()
	for _, m := range l.machines {
		rig.Clean(l.t, m.WaitQuiet(rig.Soon))
	}
	l.judgeTimes(limits)
}

func milli(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
