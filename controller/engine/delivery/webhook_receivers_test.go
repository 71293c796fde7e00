package delivery_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// TestReceiversThatMisbehave: each way of not taking an event ends as documented, after as many tries as it should, and
// no try goes anywhere else.
func TestReceiversThatMisbehave(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other := newReceiver(t, func(int, http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	status := func(code int) func(int, http.ResponseWriter, *http.Request) {
		return func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, c := range map[string]struct {
		answer   func(n int, w http.ResponseWriter, r *http.Request)
		state    string
		attempts int32
		status   int32
		problem  string
		hook     string
	}{
		"always 500": {status(http.StatusInternalServerError), webhook.Dead, 3, 500, "HTTP 500", webhook.Active},
		"not found":  {status(http.StatusNotFound), webhook.Dead, 3, 404, "HTTP 404", webhook.Active},
		"gone":       {status(http.StatusGone), webhook.Dead, 1, 410, "HTTP 410", webhook.Disabled},
		"redirects": {func(_ int, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}, webhook.Dead, 3, 307, "redirects are not followed", webhook.Active},
		"fails twice": {func(n int, w http.ResponseWriter, _ *http.Request) {
			if n < 3 {
				w.WriteHeader(http.StatusBadGateway)
			}
		}, webhook.Delivered, 3, 200, "", webhook.Active},
		"hangs up": {func(_ int, w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close() // that is the misbehaviour
			}
		}, webhook.Dead, 3, 0, "closed the connection", webhook.Active},
		"never answers": {func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			webhook.Dead, 3, 0, "no answer within", webhook.Active},
		"never ends its answer": {func(_ int, w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1024)); err != nil {
					return
				}
			}
		}, webhook.Delivered, 1, 200, "", webhook.Active},
		"created": {status(http.StatusCreated), webhook.Delivered, 1, 201, "", webhook.Active},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.limit = 500 * time.Millisecond
			rec := newReceiver(t, c.answer)
			id, _ := r.subscribe(rec.URL, webhook.MachineRegistered)
			r.run()
			r.register("m-1", nil)
			d := r.eventually(id, c.state)
			if d.GetAttempts() != c.attempts || d.GetLastStatus() != c.status ||
				!strings.Contains(d.GetLastError(), c.problem) || (c.problem == "") != (d.GetLastError() == "") {
				t.Errorf("delivery %v", d)
			}
			if got := rec.got(); len(got) != int(c.attempts) || got[0].id() != got[len(got)-1].id() {
				t.Errorf("%d requests", len(got))
			}
			if got := r.webhook(id).GetState(); got != c.hook {
				t.Errorf("the webhook is %s", got)
			}
		})
	}
	t.Cleanup(func() {
		if n := elsewhere.Load(); n != 0 {
			t.Errorf("%d requests went where a redirect led", n)
		}
	})
}

// TestReceiversMayAskForAPause: Retry-After holds all of a webhook's events, and no other webhook's.
func TestReceiversMayAskForAPause(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var first, second atomic.Int64
	rec := newReceiver(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			first.Store(time.Now().UnixNano())
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		second.CompareAndSwap(0, time.Now().UnixNano())
	})
	well := newReceiver(t, nil)
	id, _ := r.subscribe(rec.URL, webhook.MachineRegistered)
	other, _ := r.subscribe(well.URL, webhook.MachineRegistered)
	r.run()
	r.register("m-1", nil)
	r.eventually(other, webhook.Delivered)
	if second.Load() != 0 {
		t.Error("the other webhook has waited too")
	}
	r.eventually(id, webhook.Delivered)
	if waited := time.Duration(second.Load() - first.Load()); waited < 2*time.Second {
		t.Errorf("tried again after %s", waited)
	}
}

// TestASlowReceiverBlocksNobody: one that takes all its time leaves another's events alone.
func TestASlowReceiverBlocksNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.limit = 20 * time.Second
	release := make(chan struct{})
	slow := newReceiver(t, func(int, http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	quick := newReceiver(t, nil)
	r.subscribe(slow.URL, webhook.MachineRegistered)
	id, _ := r.subscribe(quick.URL, webhook.MachineRegistered)
	r.run()
	for _, m := range []string{"m-1", "m-2", "m-3", "m-4", "m-5"} {
		r.register(m, nil)
	}
	r.delivered(id, 5)
	if n := len(slow.got()); n > 2 {
		t.Errorf("%d requests at once, of 2", n)
	}
}

// TestADeathAnywhereLosesNoEvent: whatever place the controller dies in, the next one sends the event, under the same
// id. It may come twice, where it died between sending and writing that down.
func TestADeathAnywhereLosesNoEvent(t *testing.T) {
	t.Parallel()
	for point, most := range map[string]int{
		"webhook.before-deliveries": 1, "webhook.after-deliveries": 1, "webhook.before-send": 1, "webhook.after-send": 2,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			rec := newReceiver(t, nil)
			id, _ := r.subscribe(rec.URL, webhook.MachineRegistered)
			died := make(chan struct{})
			r.points = failpoint.NewScope()
			r.points.Set(point, failpoint.Call(func(context.Context) error {
				close(died)
				return failpoint.ErrInjected
			}).At(1))
			stop := r.run()
			r.register("m-1", nil)
			select {
			case <-died:
			case <-time.After(patience):
				t.Fatal("it never came there")
			}
			stop()
			r.points = nil
			r.run()
			r.delivered(id, 1)
			got := rec.got()
			if len(got) == 0 || len(got) > most || got[0].id() != got[len(got)-1].id() {
				t.Errorf("%d requests, at most %d", len(got), most)
			}
		})
	}
}
