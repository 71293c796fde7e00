package engine

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/engine/delivery"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// steppedRig is a running controller whose machine's clock is off by an hour from the database's.
type steppedRig struct {
	t     *testing.T
	store *store.Store
	e     *Engine
	box   *secret.Box
	// clocks are the database's, and follow has the controller's clock follow them.
	clocks *storetest.Clocks
	follow func()
}

// newSteppedRig starts a controller that puts a failed delivery off by about putOff.
func newSteppedRig(t *testing.T, ahead, putOff time.Duration) *steppedRig {
	t.Helper()
	s, clocks := storetest.NewWithClock(t)
	clocks.StepDatabase(-ahead)
	box, err := secret.New(bytes.Repeat([]byte{7}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	steered := clock.NewSteered(clock.Real())
	follow := func() {
		t.Helper()
		if _, _, err := steered.Follow(func() (time.Time, error) { return s.Sessions.Time(t.Context()) }); err != nil {
			t.Fatal(err)
		}
	}
	follow()
	e, err := New(Config{
		Store: s, Sessions: session.NewRegistry(), Clock: steered, Monotonic: clock.Real(), Logger: testkit.Logger(t),
		ControllerID: ids.New(ids.Controller),
		Webhooks: &delivery.Config{
			Sender: webhook.NewSender(webhook.SenderConfig{Policy: webhook.Policy{AllowLoopback: true},
				Timeout: 5 * time.Second, UserAgent: "ingot/test"}),
			Secrets: box, Source: "/test", Schedule: webhook.Schedule{Base: putOff, MaxAttempts: 4},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &steppedRig{t: t, store: s, e: e, box: box, clocks: clocks, follow: follow}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	task.Background("engine", func() {
		defer close(done)
		if err := e.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("run engine: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); <-done })
	return r
}

// eventually waits for a condition, and holds every time of every job to the database's clock meanwhile.
func (r *steppedRig) eventually(what string, cond func() bool) {
	r.t.Helper()
	testkit.Eventually(r.t, time.Minute, func() bool {
		r.t.Helper()
		off := storetest.Count(r.t, r.store, `SELECT count(*) FROM river_job WHERE greatest(
			abs(extract(epoch FROM scheduled_at - now())), abs(extract(epoch FROM attempted_at - now())),
			abs(extract(epoch FROM finalized_at - now())), abs(extract(epoch FROM created_at - now()))) > 1800`)
		if off != 0 {
			r.t.Fatalf("%s: %d jobs have times of another clock than the database's", what, off)
		}
		return cond()
	}, "%s", what)
}

// subscribe makes a webhook for machines that are registered.
func (r *steppedRig) subscribe(url string) {
	r.t.Helper()
	id := ids.New(ids.Webhook)
	_, _, err := r.store.Webhooks.CreateWebhook(r.t.Context(), webhookstore.WebhookSpec{ID: id, URL: url,
		MaxConcurrency: 2, EventTypes: []string{webhook.MachineRegistered}}, webhookstore.SealedSecret{ID: "s",
		Sealed: r.box.SealWebhook(id, "s", webhook.NewSecret())}, "tester", r.e.clock.Now())
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *steppedRig) register(machineID string) {
	r.t.Helper()
	_, err := r.store.Machines.Register(r.t.Context(), &baremetalv1.Machine{MachineId: machineID,
		Spec: &baremetalv1.MachineSpec{Provider: "fake"}}, "tester", r.e.clock.Now())
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *steppedRig) insert(args river.JobArgs) (id int64) {
	r.t.Helper()
	inserted, err := r.e.scheduler.river.Insert(r.t.Context(), args, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return inserted.Job.ID
}

func (r *steppedRig) count(where string, args ...any) int64 {
	r.t.Helper()
	return int64(storetest.Count(r.t, r.store, "SELECT count(*) FROM river_job WHERE "+where, args...))
}

// TestAClockThatIsOffPutsNoJobOff: a controller's machine is an hour ahead of the database, or behind it. Jobs of every
// kind run, fail, are put off and tried again by the database's time.
func TestAClockThatIsOffPutsNoJobOff(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSteppedRig(t, ahead, 6*time.Second)
			var posts atomic.Int64
			hold := make(chan struct{})
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				switch posts.Add(1) {
				case 1: // put off
					w.WriteHeader(http.StatusInternalServerError)
				case 2: // under way while jobs are looked after
					<-hold
				}
			}))
			t.Cleanup(receiver.Close)
			r.subscribe(receiver.URL)
			r.register("m-1")
			// There is no such operation: its job fails, again and again. There is nothing to do for a rollout that is none.
			operation := r.insert(operationArgs{MachineID: "m-1", RequestID: "r", OperationID: "op-none"})
			rollout := r.insert(rolloutArgs{RolloutID: "ro-none"})
			retention := r.insert(retentionArgs{})
			r.eventually("the job is not tried again", func() bool {
				return r.count("id = $1 AND array_length(errors, 1) >= 2", operation) == 1
			})
			r.eventually("a job has not run", func() bool {
				return r.count("id = ANY($1) AND state <> 'completed'", []int64{rollout, retention}) == 0
			})
			r.eventually("the event is not sent again", func() bool { return posts.Load() == 2 })
			if err := r.e.scheduler.removeJobs(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := r.count("kind = $1 AND state = 'running' AND attempt = 1", delivery.JobKind); n != 1 {
				t.Errorf("%d deliveries under way, want 1", n)
			}
			close(hold)
			r.eventually("the event is not delivered", func() bool {
				return storetest.Count(t, r.store, "SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered'") == 1
			})
			if n := posts.Load(); n != 2 {
				t.Errorf("%d requests, want 2", n)
			}
			r.eventually("finished jobs are kept", func() bool {
				return r.count("state = 'completed' AND finalized_at < now() - interval '45 seconds'") == 0
			})
		})
	}
}

// TestALateDeliveryDoesNotWaitForAClockThatWasAhead: a controller of an older version, an hour ahead, has put off a
// delivery. It is sent once it is late by the database's time.
func TestALateDeliveryDoesNotWaitForAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	r := newSteppedRig(t, 0, time.Minute) // River does not schedule a job that waits for less than 5 s
	var posts atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if posts.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(receiver.Close)
	r.subscribe(receiver.URL)
	r.register("m-1")
	r.eventually("the delivery is not put off", func() bool {
		return r.count("kind = $1 AND state = 'scheduled'",
			delivery.JobKind) == 1
	})
	if err := storetest.ExecSQL(t, r.store, `UPDATE river_job SET scheduled_at = scheduled_at + interval '1 hour'
		WHERE kind = $1`, delivery.JobKind); err != nil {
		t.Fatal(err)
	}
	r.clocks.StepDatabase(3 * time.Minute)
	r.follow()
	testkit.Eventually(t, 5*time.Minute, func() bool { return posts.Load() == 2 }, "it waits")
}

// TestAJobThatHangsIsFreed: a worker that ignores its end keeps its job for no longer than the time of its kind, by the
// database's clock.
func TestAJobThatHangsIsFreed(t *testing.T) {
	t.Parallel()
	s, clocks := storetest.NewWithClock(t)
	e := engineOver(t, s, "ctl", clock.Real())
	if err := errors.Join(e.RenewLease(t.Context()), e.leases.keepJobLease(t.Context())); err != nil {
		t.Fatal(err)
	}
	hold, held := make(chan struct{}), make(chan struct{})
	scope := failpoint.NewScope()
	scope.Set(fpInJob.Name(), failpoint.Call(func(context.Context) error {
		close(held)
		<-hold
		return nil
	}).At(1))
	startOn(t, s, "m-1", fleet.EnterMaintenance, time.Now())
	if err := e.scheduler.river.Start(failpoint.With(t.Context(), scope)); err != nil {
		t.Fatal(err)
	}
	<-held
	for _, c := range []struct {
		after time.Duration
		held  int
	}{{jobTime + hungAfter/2, 1}, {hungAfter, 0}} {
		clocks.StepDatabase(c.after)
		if err := e.scheduler.removeJobs(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := storetest.Count(t, s, "SELECT count(*) FROM river_job WHERE state = 'running' AND attempt = 1")
		if n != c.held {
			t.Errorf("after %v more the worker has %d jobs, want %d", c.after, n, c.held)
		}
	}
	close(hold)
	if err := e.scheduler.river.StopAndCancel(t.Context()); err != nil {
		t.Fatal(err)
	}
}
