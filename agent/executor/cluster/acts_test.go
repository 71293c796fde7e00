package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/cluster"
	"github.com/ingot-metal/ingot/agent/provider/kube"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/testkit"
)

const (
	succeeded = fleetv1.CommandResult_SUCCEEDED
	failed    = fleetv1.CommandResult_FAILED
	denied    = baremetalv1.Reason_CLUSTER_ACCESS_DENIED
	mismatch  = baremetalv1.Reason_CLUSTER_NODE_MISMATCH
	notReady  = baremetalv1.Reason_CLUSTER_NODE_NOT_READY
	away      = baremetalv1.Reason_CLUSTER_UNREACHABLE
	blocked   = baremetalv1.Reason_DRAIN_BLOCKED
	timeUp    = baremetalv1.Reason_STEP_TIMEOUT
)

// quick is a clock on which every wait has already ended.
type quick struct {
	clock.Clock
	now *time.Time
}

func newQuick() quick {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	return quick{clock.Real(), &now}
}

func (q quick) Now() time.Time { return *q.now }

func (q quick) After(d time.Duration) <-chan time.Time {
	*q.now = q.now.Add(d)
	c := make(chan time.Time, 1)
	c <- *q.now
	return c
}

// newQuickRig returns a rig on such a clock, with the default time between two polls.
func newQuickRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.clock, r.poll = newQuick(), 0
	return r
}

// decode reads the body of a request, and leaves it there.
func decode(r *http.Request, into any) error {
	raw, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(raw))
	return errors.Join(err, json.Unmarshal(raw, into))
}

// answers returns the same answer to all calls with the method whose path has the suffix.
func answers(method, suffix string, status int, body string) func(*http.Request) (int, string) {
	return func(r *http.Request) (int, string) {
		if r.Method != method || !strings.HasSuffix(r.URL.Path, suffix) {
			return 0, ""
		}
		return status, body
	}
}

// node is a Node as the API server shows it.
func node(boot, uid, ready string, unschedulable bool) string {
	return fmt.Sprintf(`{"metadata":{"name":"m-1","uid":%q},"spec":{"unschedulable":%t},"status":{
		"nodeInfo":{"bootID":%q,"kubeletVersion":"v1.30.0"},
		"conditions":[{"type":"Ready","status":%q,"reason":"KubeletReady","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		uid, unschedulable, boot, ready)
}

func act(name string) *fleetv1.ClusterAction { return &fleetv1.ClusterAction{Act: name, BootId: "b-1"} }

func removal() *fleetv1.ClusterAction {
	a := drain()
	a.RemoveNode = true
	return a
}

// TestHowAnActEnds by the cluster's answers; nothing is done to a Node that is another machine.
func TestHowAnActEnds(t *testing.T) {
	t.Parallel()
	const no = `{"message":"no"}`
	get, patch, post, remove := http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodDelete
	for name, c := range map[string]struct {
		act       *fleetv1.ClusterAction
		says      func(*http.Request) (int, string)
		outcome   fleetv1.CommandResult_Outcome
		reason    baremetalv1.Reason
		retryable bool
		message   string
		cordoned  bool // afterwards, as it was before
	}{
		"uncordon": {act("uncordon"), nil, succeeded, none, false, "", false},
		"uncordon, no Node": {act("uncordon"), answers(get, "/m-1", 404, no), failed, notReady, false, "no Node m-1",
			true},
		"uncordon, not let see": {act("uncordon"), answers(get, "/m-1", 403, no), failed, denied, false, "", true},
		"uncordon, another Node": {act("uncordon"), answers(get, "/m-1", 200, node("b-9", "n", "True", true)), failed,
			mismatch, false, "boot b-9", true},
		"uncordon, not let": {act("uncordon"), answers(patch, "/m-1", 403, no), failed, denied, false, "", true},
		"uncordon, no effect": {act("uncordon"), answers(patch, "/m-1", 200, node("b-1", "n", "True", true)), failed,
			baremetalv1.Reason_EVIDENCE_MISSING, true, "", true},
		"token, not let":  {act("token"), answers(post, "/secrets", 403, no), failed, denied, false, "", true},
		"verify, not let": {act("verify"), answers(get, "/m-1", 403, no), failed, denied, false, "", true},
		"verify, another machine": {act("verify"), answers(get, "/m-1", 200, node("b-9", "n", "True", false)), failed,
			mismatch, false, "", true},
		"verify, no Node": {act("verify"), answers(get, "/m-1", 404, no), failed, notReady, true, "no Node m-1", true},
		"verify, not ready": {act("verify"), answers(get, "/m-1", 200, node("b-1", "n", "False", false)), failed,
			notReady, true, "is not ready", true},
		"verify, away":       {act("verify"), answers(get, "/m-1", 503, no), failed, away, true, "503", true},
		"drain, not let see": {drain(), answers(get, "/m-1", 403, no), failed, denied, false, "", true},
		"drain, no Node":     {drain(), answers(get, "/m-1", 404, no), failed, notReady, false, "no Node m-1", true},
		"drain, another machine": {drain(), answers(get, "/m-1", 200, node("b-9", "n", "True", false)), failed, mismatch,
			false, "", true},
		"drain, pods not seen": {drain(), answers(get, "/pods", 403, no), failed, denied, false, "", true},
		"drain, not let evict": {drain(), answers(post, "/eviction", 403, no), failed, denied, false, "", true},
		"removal, not let":     {removal(), answers(remove, "/m-1", 403, no), failed, denied, false, "", true},
		"removal, Node stays": {removal(), answers(remove, "/m-1", 200, "{}"), failed, timeUp, true, "see the Node gone",
			true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newQuickRig(t)
			r.pod, r.unschedulable, r.says = true, true, c.says
			got, err := r.do(t.Context(), c.act, time.Minute)
			r.wants(got, err, c.outcome, c.reason)
			if got.Retryable != c.retryable || !strings.Contains(got.Message, c.message) {
				t.Errorf("it can be tried again: %t; %q", got.Retryable, got.Message)
			}
			if r.unschedulable != c.cordoned {
				t.Errorf("afterwards cordoned %t", r.unschedulable)
			}
			if c.act.GetAct() == "uncordon" && c.outcome == succeeded && (got.Evidence[evidence.NodeSchedulable] != "true" ||
				got.Evidence[evidence.NodeIdentity] != kube.ByBootID || got.Evidence[evidence.ClusterName] != "prod" ||
				got.Evidence["node"] != "m-1") {
				t.Errorf("evidence %v", got.Evidence)
			}
		})
	}
}

// TestATokenOfAJoin is made in the cluster, lives as long as it was given, and its secret is in no evidence.
func TestATokenOfAJoin(t *testing.T) {
	t.Parallel()
	r := newQuickRig(t)
	var made struct {
		Metadata struct{ Name string }
		Data     map[string][]byte
	}
	r.says = func(q *http.Request) (int, string) {
		if q.Method != http.MethodPost || decode(q, &made) != nil {
			return 0, ""
		}
		return http.StatusCreated, "{}"
	}
	got, err := r.do(t.Context(), act("token"), time.Minute)
	r.wants(got, err, succeeded, none)
	if made.Metadata.Name != "bootstrap-token-abcdef" || string(made.Data["token-secret"]) != "s" ||
		string(made.Data["expiration"]) != "2026-11-01T13:00:00Z" {
		t.Errorf("made %s %q", made.Metadata.Name, made.Data)
	}
	if got.Evidence["join_token_id"] != "abcdef" || len(got.Evidence) != 3 {
		t.Errorf("evidence %v", got.Evidence)
	}
	for _, a := range []*fleetv1.ClusterAction{act("token"), act("uncordon")} {
		scope := failpoint.NewScope()
		scope.Set(executor.AfterEffect.Name(), failpoint.Error())
		if got, err := r.do(failpoint.With(t.Context(), scope), a, time.Minute); !errors.Is(err, failpoint.ErrInjected) {
			t.Errorf("a crash after %s: %+v, %v", a.GetAct(), got, err)
		}
	}
}

// TestVerifyWaits until the Node is the machine in service, and logs each thing that it waits for once.
func TestVerifyWaits(t *testing.T) {
	t.Parallel()
	r := newQuickRig(t)
	looks := 0
	r.says = func(*http.Request) (int, string) {
		switch looks++; {
		case looks <= 2:
			return http.StatusNotFound, "{}"
		case looks <= 5:
			return http.StatusOK, node("b-1", "n", "False", false)
		}
		return http.StatusOK, node("b-1", "n", "True", false)
	}
	got, err := r.do(t.Context(), act("verify"), time.Minute)
	r.wants(got, err, succeeded, none)
	for key, want := range map[string]string{
		evidence.NodeReadyAt: "2026-01-01T00:00:00Z", evidence.NodeIdentity: kube.ByBootID,
		evidence.KubeletVersion: "v1.30.0", "node_uid": "n",
	} {
		if got.Evidence[key] != want {
			t.Errorf("evidence %s: %q, want %q", key, got.Evidence[key], want)
		}
	}
	want := []string{"0 cluster prod has no Node m-1", "0 Node m-1 is not ready: KubeletReady:"}
	if looks != 6 || !slices.Equal(r.progress, want) {
		t.Errorf("%d looks, progress %q", looks, r.progress)
	}
}

// TestAnActEndsInTimeToSaySo: a fifth of its time, and at most ten seconds, is left when it stops. It looks every two
// seconds.
func TestAnActEndsInTimeToSaySo(t *testing.T) {
	t.Parallel()
	for timeout, limit := range map[time.Duration]time.Duration{30 * time.Second: 24 * time.Second,
		2 * time.Minute: 110 * time.Second} {
		r := newQuickRig(t)
		q := newQuick()
		began := *q.now
		r.clock = q
		r.says = answers(http.MethodGet, "/m-1", http.StatusServiceUnavailable, "{}")
		got, err := r.do(t.Context(), act("verify"), timeout)
		r.wants(got, err, failed, away)
		if took := q.now.Sub(began); took != limit {
			t.Errorf("of %s it took %s, want %s", timeout, took, limit)
		}
		if looks := int(limit/(2*time.Second)) + 1; len(r.calls) != looks || len(r.progress) != looks-1 &&
			len(r.progress) != looks {
			t.Errorf("%d looks, and %d words about them, want %d", len(r.calls), len(r.progress), looks)
		}
		if !strings.HasPrefix(r.progress[0], "0 ") || !strings.Contains(r.progress[0], "503") {
			t.Errorf("progress %q", r.progress[0])
		}
	}
}

// TestWhoStopsAWait: a cancel ends it, a stop of the agent leaves it to the next life, and the end of the time is a
// failure.
func TestWhoStopsAWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		act    *fleetv1.ClusterAction
		says   func(*http.Request) (int, string)
		cause  error
		reason baremetalv1.Reason
	}{
		"verify, canceled": {act("verify"), answers(http.MethodGet, "/m-1", 404, "{}"), executor.ErrCanceled,
			baremetalv1.Reason_CANCELED_BY_REQUEST},
		"verify, stopped":    {act("verify"), answers(http.MethodGet, "/m-1", 404, "{}"), executor.ErrShutdown, none},
		"verify, time is up": {act("verify"), answers(http.MethodGet, "/m-1", 404, "{}"), executor.ErrTimeout, notReady},
		"drain, time is up":  {drain(), answers(http.MethodPost, "/eviction", 429, "{}"), executor.ErrTimeout, timeUp},
		"away, stopped":      {act("verify"), answers(http.MethodGet, "/m-1", 503, "{}"), executor.ErrShutdown, none},
		"away, canceled": {act("verify"), answers(http.MethodGet, "/m-1", 503, "{}"), executor.ErrCanceled,
			baremetalv1.Reason_CANCELED_BY_REQUEST},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			r.pod, r.poll = true, time.Minute
			r.says = func(q *http.Request) (int, string) {
				status, body := c.says(q)
				if status != 0 {
					time.AfterFunc(500*time.Millisecond, func() { cancel(c.cause) }) // most likely while it waits for the next look
				}
				return status, body
			}
			got, err := r.do(ctx, c.act, time.Hour)
			if errors.Is(c.cause, executor.ErrShutdown) {
				if !errors.Is(err, executor.ErrInterrupted) {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			outcome := failed
			if errors.Is(c.cause, executor.ErrCanceled) {
				outcome = fleetv1.CommandResult_CANCELED
			}
			r.wants(got, err, outcome, c.reason)
		})
	}
}

// TestNothingIsSaidToAClusterThatCannotBe: access that is worth nothing, and an intent that is damaged, end the act. No
// connection stays open after any act.
func TestNothingIsSaidToAClusterThatCannotBe(t *testing.T) {
	t.Parallel()
	r := newQuickRig(t)
	ca := r.access.CAPEM
	r.access.CAPEM = []byte("no certificate")
	got, err := r.do(t.Context(), act("verify"), time.Minute)
	r.wants(got, err, failed, baremetalv1.Reason_INVALID_FIELD)
	r.access.CAPEM, r.intent = ca, json.RawMessage("{")
	if got, err := r.do(t.Context(), act("verify"), time.Minute); err == nil || len(r.calls) != 0 {
		t.Errorf("with a damaged intent: %+v, calls %v", got, r.calls)
	}
	r.intent = json.RawMessage("{}")
	got, err = r.do(t.Context(), act("verify"), time.Minute)
	r.wants(got, err, succeeded, none)
	testkit.Eventually(t, 10*time.Second, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.open == 0
	}, "a connection stays open")
}

// TestWhatIsNotKnownIsNotWaitedFor: a machine without a boot id, and an order without a version, are served by any.
func TestWhatIsNotKnownIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	var n kube.Node
	if err := json.Unmarshal([]byte(node("b-1", "n", "True", false)), &n); err != nil {
		t.Fatal(err)
	}
	for _, boot := range []string{"", "b-1"} {
		for _, version := range []string{"", "v1.30.0"} {
			if why := cluster.Waits(&n, kube.Machine{BootID: boot}, version); why != "" {
				t.Errorf("boot %q, version %q: %s", boot, version, why)
			}
		}
	}
}
