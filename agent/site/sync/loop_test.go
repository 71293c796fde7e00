package sync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// controller is a fake that serves one document and records the reports that it receives.
type controller struct {
	fleetv1.AgentServiceClient
	mu      sync.Mutex
	doc     *fleetv1.SiteDocument
	changed chan struct{}
	calls   []*fleetv1.SyncSiteRequest
	// answer may fail a call after it has counted.
	answer func(n int) error
	// check is called with each request.
	check func(*fleetv1.SyncSiteRequest)
}

func newController() *controller { return &controller{changed: make(chan struct{})} }

func (c *controller) set(revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doc = &fleetv1.SiteDocument{Revision: revision, Site: "here"}
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *controller) all() []*fleetv1.SyncSiteRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*fleetv1.SyncSiteRequest(nil), c.calls...)
}

func (c *controller) SyncSite(
	ctx context.Context, r *fleetv1.SyncSiteRequest, _ ...grpc.CallOption,
) (*fleetv1.SyncSiteResponse, error) {
	c.mu.Lock()
	c.calls = append(c.calls, r)
	n := len(c.calls)
	c.mu.Unlock()
	if c.check != nil {
		c.check(r)
	}
	if c.answer != nil {
		if err := c.answer(n); err != nil {
			return nil, err
		}
	}
	timer := time.NewTimer(time.Duration(r.GetHoldMs()) * time.Millisecond)
	defer timer.Stop()
	for {
		c.mu.Lock()
		doc, changed := c.doc, c.changed
		c.mu.Unlock()
		if doc != nil && doc.GetRevision() != r.GetAppliedRevision() {
			return &fleetv1.SyncSiteResponse{Document: doc}, nil
		}
		select {
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-timer.C:
			return &fleetv1.SyncSiteResponse{}, nil
		case <-changed:
		}
	}
}

// site is one process after the other over one memory.
type site struct {
	t       *testing.T
	c       *controller
	dir     string
	reports *Reports
	// served is the revision that the services of the process answer by; 0 in a new one.
	mu     sync.Mutex
	served int64
	refuse error
}

// process runs a loop until ctx ends or it dies.
func (s *site) process(ctx context.Context) error {
	store, err := state.Open(ctx, state.Config{Dir: s.dir})
	if err != nil {
		return err
	}
	defer func() {
		if err := store.Close(); err != nil {
			s.t.Error(err)
		}
	}()
	s.setServed(0)
	l := New(Config{
		Call: func(ctx context.Context, fn func(context.Context, fleetv1.AgentServiceClient) error) error {
			return fn(ctx, s.c)
		},
		Apply: func(_ context.Context, doc *fleetv1.SiteDocument) error {
			if s.refuse != nil {
				return s.refuse
			}
			s.setServed(doc.GetRevision())
			return nil
		},
		Store: store.Site(), Reports: s.reports, Hold: 200 * time.Millisecond, Pause: time.Millisecond, Clock: clock.Real(),
		Log: testkit.Logger(s.t),
	})
	if err := l.Start(ctx); err != nil {
		return err
	}
	return l.Run(ctx)
}

func (s *site) setServed(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = n
}

func (s *site) serves() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served
}

// run runs one process in the background.
func (s *site) run(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	g, _ := task.New(context.WithoutCancel(ctx))
	g.Go("process", func(context.Context) error { return s.process(ctx) })
	stop = sync.OnceValue(func() error { cancel(); return g.Wait() })
	s.t.Cleanup(func() { _ = stop() }) // looked at by those who care
	return stop
}

const patience = 20 * time.Second

func newSite(t *testing.T, c *controller) *site {
	return &site{t: t, c: c, dir: t.TempDir(), reports: NewReports()}
}

func (s *site) waitTold(revision int64) {
	s.t.Helper()
	testkit.Eventually(s.t, patience, func() bool {
		all := s.c.all()
		return len(all) > 0 && all[len(all)-1].GetAppliedRevision() == revision
	}, "revision %d is not told as applied", revision)
}

func TestANewDocumentIsServedThenTold(t *testing.T) {
	t.Parallel()
	c := newController()
	s := newSite(t, c)
	c.check = func(r *fleetv1.SyncSiteRequest) {
		if r.GetAppliedRevision() != s.serves() {
			t.Errorf("told %d, served %d", r.GetAppliedRevision(), s.serves())
		}
	}
	c.set(1)
	stop := s.run(t.Context())
	for _, revision := range []int64{1, 2, 3, 2} { // a restored database counts backwards
		c.set(revision)
		s.waitTold(revision)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	c.answer = func(int) error { return status.Error(codes.Unavailable, "gone") }
	s.setServed(0)
	stop = s.run(t.Context())
	testkit.Eventually(t, patience, func() bool { return s.serves() == 2 }, "the stored document is not served")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// TestAKillAtEveryPoint ends the process at each failpoint and starts another one: nothing is reported that is not
// stored and served, and the newest document is served in the end.
func TestAKillAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"site.before-stored", "site.after-stored", "site.after-applied",
		"site.after-reported"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := newController()
			s := newSite(t, c)
			c.check = func(r *fleetv1.SyncSiteRequest) {
				if r.GetAppliedRevision() != s.serves() {
					t.Errorf("told %d, served %d", r.GetAppliedRevision(), s.serves())
				}
			}
			c.set(1)
			stop := s.run(t.Context())
			s.waitTold(1)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			scope := failpoint.NewScope()
			scope.Set(point, failpoint.Error().At(1))
			c.set(2)
			s.reports.Unknown(&fleetv1.UnknownMachine{Segment: "rack1", MacAddress: "02:00:00:00:00:01"})
			if err := s.process(failpoint.With(t.Context(), scope)); !errors.Is(err, failpoint.ErrInjected) {
				t.Fatalf("the process ended with %v", err)
			}
			s.run(t.Context())
			s.waitTold(2)
		})
	}
}

func TestADocumentThatCannotBeServedIsNotTold(t *testing.T) {
	t.Parallel()
	c := newController()
	s := newSite(t, c)
	s.refuse = errors.New("no room")
	c.set(5)
	stop := s.run(t.Context())
	testkit.Eventually(t, patience, func() bool { return len(c.all()) >= 2 }, "it is not tried again")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, r := range c.all() {
		if r.GetAppliedRevision() != 0 {
			t.Errorf("told %d", r.GetAppliedRevision())
		}
	}
	s.refuse = nil
	s.run(t.Context())
	s.waitTold(5)
}

// TestWhatIsNotAnsweredIsSentAgain loses every answer to a report once.
func TestWhatIsNotAnsweredIsSentAgain(t *testing.T) {
	t.Parallel()
	c := newController()
	c.set(1)
	s := newSite(t, c)
	c.answer = func(n int) error {
		if n%2 == 0 {
			return status.Error(codes.Unavailable, "answer lost")
		}
		return nil
	}
	s.run(t.Context())
	s.waitTold(1)
	for i := range 5 {
		mac := fmt.Sprintf("02:00:00:00:00:0%d", i)
		s.reports.Unknown(&fleetv1.UnknownMachine{Segment: "rack1", MacAddress: mac})
		s.reports.BMC(&fleetv1.BMCObservation{MachineId: mac, PowerState: "on"})
		s.reports.Leases([]*fleetv1.SiteLease{{Segment: "rack1", MacAddress: mac}})
		s.reports.Segments([]*fleetv1.SegmentObservation{{Segment: "rack1", PoolUsed: int32(i)}})
		testkit.Eventually(t, patience, func() bool { return c.answered(mac, int32(i)) }, "report %d is not answered", i)
	}
	testkit.Eventually(t, patience, func() bool { return !s.reports.pending() }, "something is sent for ever")
}

// answered reports whether calls that were answered carried all of a report.
func (c *controller) answered(mac string, used int32) bool {
	var unknown, bmc, lease, segment bool
	for i, r := range c.all() {
		if (i+1)%2 == 0 {
			continue // its answer was lost
		}
		for _, u := range r.GetUnknown() {
			unknown = unknown || u.GetMacAddress() == mac
		}
		for _, o := range r.GetBmcs() {
			bmc = bmc || o.GetMachineId() == mac
		}
		for _, l := range r.GetLeases() {
			lease = lease || l.GetMacAddress() == mac && r.GetLeasesChanged()
		}
		for _, o := range r.GetSegments() {
			segment = segment || o.GetPoolUsed() == used
		}
	}
	return unknown && bmc && lease && segment
}

func TestReportsInterruptAHeldCall(t *testing.T) {
	t.Parallel()
	c := newController()
	c.set(1)
	s := newSite(t, c)
	s.run(t.Context())
	s.waitTold(1)
	testkit.Eventually(t, patience, func() bool { all := c.all(); return all[len(all)-1].GetHoldMs() > 0 },
		"no call is held")
	s.reports.Unknown(&fleetv1.UnknownMachine{MacAddress: "x"})
	testkit.Eventually(t, patience, func() bool {
		for _, r := range c.all() {
			if len(r.GetUnknown()) == 1 && r.GetHoldMs() == 0 {
				return true
			}
		}
		return false
	}, "it waits for the held call")
}

func TestReportsThatSayNothingNewAreNotSent(t *testing.T) {
	t.Parallel()
	r := NewReports()
	leases := []*fleetv1.SiteLease{{MacAddress: "a"}, {MacAddress: "b"}}
	r.Leases(leases)
	if b := r.take(); !b.pending || !b.req.GetLeasesChanged() {
		t.Error("the first list is not sent")
	}
	r.Leases([]*fleetv1.SiteLease{leases[1], leases[0]})
	if r.pending() {
		t.Error("another order of the same list is sent")
	}
	r.Leases(nil)
	if b := r.take(); !b.pending || !b.req.GetLeasesChanged() || len(b.req.GetLeases()) != 0 {
		t.Error("the end of the last lease is not sent")
	}
	for i := range 2 * maxUnknown {
		r.Unknown(&fleetv1.UnknownMachine{MacAddress: fmt.Sprint(i)})
	}
	if n := len(r.take().req.GetUnknown()); n != maxUnknown {
		t.Errorf("%d unknown machines are remembered", n)
	}
	seen := func(power string, at time.Duration) int {
		r.BMC(&fleetv1.BMCObservation{MachineId: "b", PowerState: power, SeenAt: timestamppb.New(time.Unix(0, 0).Add(at))})
		return len(r.take().req.GetBmcs())
	}
	if a, b, c, d := seen("on", 0), seen("on", time.Minute), seen("off", 2*time.Minute),
		seen("off", 8*time.Minute); a != 1 || b != 0 || c != 1 || d != 1 {
		t.Errorf("a BMC's words are told %d, %d, %d and %d times", a, b, c, d)
	}
	// What was given back doesn't hide a newer word.
	r.BMC(&fleetv1.BMCObservation{MachineId: "m", PowerState: "off"})
	b := r.take()
	r.BMC(&fleetv1.BMCObservation{MachineId: "m", PowerState: "on"})
	r.giveBack(b)
	if got := r.take().req.GetBmcs(); len(got) != 1 || got[0].GetPowerState() != "on" {
		t.Errorf("after giving back: %v", got)
	}
}
