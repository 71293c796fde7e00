package standby

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/standby"
)

// pairSettings leave out fsync: the kill is of a server, not of the machine under it.
var pairSettings = map[string]string{"fsync": "off", "max_connections": "120", "shared_buffers": "32MB"}

// openPair runs a primary and its standby until the test ends.
func openPair(t *testing.T, asynchronous bool, more map[string]string) *standby.Pair {
	t.Helper()
	settings := maps.Clone(pairSettings)
	maps.Copy(settings, more)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := standby.Open(ctx, standby.Config{Dir: pairDir(t), Asynchronous: asynchronous, Ephemeral: true,
		Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Log(err)
		}
	})
	return p
}

// pairDir is a directory that the user of Postgres can enter, which a test's own is not.
func pairDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ingot-pair-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the servers have removed the most of it
	return dir
}

// acceptedWork reboots machines again and again, and keeps every operation that the API has accepted.
type acceptedWork struct {
	t    *testing.T
	c    *harness.Client
	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	accepted map[string]time.Time
	ended    map[string]time.Time
}

func startAcceptedWork(t *testing.T, c *harness.Client, machines []*harness.Machine) *acceptedWork {
	t.Helper()
	w := &acceptedWork{t: t, c: c, accepted: map[string]time.Time{}, ended: map[string]time.Time{}}
	w.ctx, w.stop = context.WithCancel(t.Context())
	t.Cleanup(w.end)
	for _, m := range machines {
		w.done.Go(func() { w.work(m.ID) })
	}
	return w
}

func (w *acceptedWork) end() {
	w.stop()
	w.done.Wait()
}

// work asks for one reboot after the other. A call that fails is made again under its request id.
func (w *acceptedWork) work(machineID string) {
	for i := 0; w.ctx.Err() == nil; {
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		op, err := w.c.Machines().RebootMachine(ctx, &baremetalv1.RebootMachineRequest{
			MachineId: machineID, RequestId: fmt.Sprint("work-", i), TimeoutSeconds: rig.PatientTime,
		})
		cancel()
		if err == nil {
			w.note(w.accepted, op.GetOperationId())
			w.follow(op.GetOperationId())
			i++
		}
		w.rest()
	}
}

func (w *acceptedWork) follow(id string) {
	for w.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		op, err := w.c.Operations().GetOperation(ctx, &baremetalv1.GetOperationRequest{OperationId: id})
		cancel()
		if err == nil && harness.Ended(op) {
			w.note(w.ended, id)
			return
		}
		if harness.HasReason(err, "OPERATION_NOT_FOUND") {
			return // the database has gone back
		}
		w.rest()
	}
}

func (w *acceptedWork) rest() {
	select {
	case <-w.ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

func (w *acceptedWork) note(where map[string]time.Time, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := where[id]; !known {
		where[id] = time.Now()
	}
}

// after returns the earliest of them after a time; zero when there is none.
func (w *acceptedWork) after(where map[string]time.Time, t time.Time) (first time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range where {
		if at.After(t) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// whole reports whether an operation was accepted and has ended since a time.
func (w *acceptedWork) whole(since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.ended {
		if w.accepted[id].After(since) {
			return true
		}
	}
	return false
}

func (w *acceptedWork) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for id := range w.accepted {
		ids = append(ids, id)
	}
	return ids
}

// workers are machines in maintenance, ready for reboots.
func workers(t *testing.T, c *harness.Client, n int) []*harness.Machine {
	t.Helper()
	var out []*harness.Machine
	for range n {
		out = append(out, c.NewMachine(t, harness.MachineOptions{Delay: 20 * time.Millisecond}))
	}
	for _, m := range out {
		m.WaitConnected()
		rig.Maintenance(t, c, m.ID)
	}
	return out
}

// failOver kills the primary and promotes the standby, and returns when that was done.
func failOver(t *testing.T, p *standby.Pair) time.Time {
	t.Helper()
	if err := p.KillPrimary(); err != nil {
		t.Fatal(err)
	}
	<-time.After(200 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

// TestASynchronousStandbyLosesNothing: what was accepted is there after a promotion, the work goes on, and nothing is
// frozen.
func TestASynchronousStandbyLosesNothing(t *testing.T) {
	t.Parallel()
	manual := readManual(t)
	p := openPair(t, true, manual.settings)
	as(t, p.Primary, manual.attach)
	testkit.Eventually(t, rig.Soon, func() bool {
		return as(t, p.Primary, []string{"SELECT sync_state FROM pg_stat_replication"}) == "sync"
	}, "the standby is not synchronous after what the manual says")
	r := harness.NewTrioOn(t, manual.urlOf(t, p))
	machines := workers(t, r.Client, 4)
	w := startAcceptedWork(t, r.Client, machines)
	<-time.After(standbyLoad)
	if err := p.KillPrimary(); err != nil {
		t.Fatal(err)
	}
	<-time.After(200 * time.Millisecond)
	as(t, p.Standby, manual.promote)
	promoted := time.Now()
	testkit.Eventually(t, rig.Soon, func() bool {
		return !w.after(w.ended, w.after(w.accepted, promoted)).IsZero() && !w.after(w.accepted, promoted).IsZero()
	},
		"no operation was accepted and ended after the promotion")
	first := w.after(w.accepted, promoted)
	<-time.After(standbyLoad)
	w.end()
	ids := w.all()
	for _, id := range ids {
		rig.Ended(t, r.Wait(id, rig.Soon), rig.Succeeded, "")
	}
	info := harness.Must(t, r.Admin().GetServerInfo, &baremetalv1.GetServerInfoRequest{})
	if info.GetFrozenSince() != nil {
		t.Errorf("frozen over a promotion that lost nothing: %s", info.GetFrozenBecause())
	}
	for _, m := range machines {
		rig.Clean(t, m.WaitQuiet(rig.Soon))
	}
	t.Logf(
		"%d operations were accepted and all are there; the first after the promotion came %v after it, and ended %v after it",
		len(ids),
		first.Sub(promoted).Round(time.Millisecond),
		w.after(w.ended, first).Sub(promoted).Round(time.Millisecond),
	)
}

// TestAnAsynchronousStandbyThatLagsFreezesTheFleet: the controllers notice by themselves, whatever they still remember.
func TestAnAsynchronousStandbyThatLagsFreezesTheFleet(t *testing.T) {
	t.Parallel()
	for _, way := range standbyWays {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			lagBehind(t, way)
		})
	}
}

// The states of the controllers between the kill of the primary and the promotion.
const (
	staysUp   = "controllers stay up"
	restarted = "controllers are restarted"
	forgetful = "controllers are restarted without their marks"
)

func lagBehind(t *testing.T, way string) {
	p := openPair(t, true, nil)
	r := harness.NewTrioOn(t, p.URL())
	machines := workers(t, r.Client, 3)
	w := startAcceptedWork(t, r.Client, machines)
	<-time.After(standbyLoad / 2)
	p.Stream.Freeze() // from here on the standby hears nothing
	frozen := time.Now()
	testkit.Eventually(t, rig.Soon, func() bool { return w.whole(frozen) },
		"no operation was accepted and ended while the standby lags")
	if err := p.KillPrimary(); err != nil {
		t.Fatal(err)
	}
	if way != staysUp {
		for i, c := range r.Controllers {
			r.Kill(i)
			if way == forgetful {
				c.ForgetPosition()
			}
		}
	}
	w.end()
	<-time.After(1500 * time.Millisecond) // what was granted is begun
	before := effects(machines)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	if way != staysUp {
		for _, c := range r.Controllers {
			c.Start("")
		}
	}
	promoted := time.Now()
	var info *baremetalv1.ServerInfo
	testkit.Eventually(t, rig.Soon, func() bool {
		var err error
		info, err = harness.Call(t, r.Admin().GetServerInfo, &baremetalv1.GetServerInfoRequest{})
		return err == nil && info.GetFrozenSince() != nil
	}, "nobody notices that the database has gone back")
	t.Logf("frozen %v after the promotion: %s", time.Since(promoted).Round(time.Millisecond), info.GetFrozenBecause())
	if info.GetFrozenReason() != "DATABASE_WENT_BACK" {
		t.Errorf("frozen for %s", info.GetFrozenReason())
	}
	for _, m := range machines {
		m.WaitConnected()
		_, err := harness.Call(t, r.Machines().RebootMachine,
			&baremetalv1.RebootMachineRequest{MachineId: m.ID, RequestId: "frozen", TimeoutSeconds: rig.PatientTime})
		if err == nil {
			t.Errorf("%s takes work while the fleet is frozen", m.ID)
		}
	}
	<-time.After(2 * time.Second)
	if after := effects(machines); after != before {
		t.Errorf("%d effects at the promotion, %d since: something was begun out of a database that has gone back", before,
			after)
	}
	if code, out := r.Ingot("why", machines[0].ID); !strings.Contains(out, "DATABASE_WENT_BACK") {
		t.Errorf("ingot why does not name the reason (%d):\n%s", code, out)
	}
	thaws(t, r, machines)
}

// thaws lifts the freeze by the reason's cure, and works.
func thaws(t *testing.T, r *harness.Trio, machines []*harness.Machine) {
	t.Helper()
	if code, out := r.Ingot("server", "thaw", "--comment", "compared"); code != 0 {
		t.Fatalf("ingot server thaw: %d\n%s", code, out)
	}
	<-time.After(3 * time.Second) // long enough to be noticed once more, were it not known already
	info := harness.Must(t, r.Admin().GetServerInfo, &baremetalv1.GetServerInfoRequest{})
	if info.GetFrozenSince() != nil {
		t.Fatalf("frozen again: %s", info.GetFrozenBecause())
	}
	m := r.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, r.Client, m.ID)
	rig.Ended(t, r.Wait(rig.Reboot(t, r.Client, m.ID, "after", rig.PatientTime).GetOperationId(), rig.Soon), rig.Succeeded,
		"")
	for _, m := range append(machines, m) {
		for _, p := range m.WaitQuiet(rig.Soon).Problems() {
			// Commands that the database has lost are known to the machine alone.
			if strings.Contains(p, "twice") {
				t.Error(p)
			}
		}
	}
}

// effects counts the effects on machines.
func effects(machines []*harness.Machine) (n int) {
	for _, m := range machines {
		n += len(m.Journal())
	}
	return n
}
