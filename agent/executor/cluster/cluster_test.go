package cluster_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/cluster"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/provider/kube"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

// apiServer is as much of one as a drain of one Node with one pod takes. What clusters really answer is tested in
// lab/clusters.
type apiServer struct {
	mu            sync.Mutex
	unschedulable bool
	gone          bool // the Node
	pod           bool
	held          bool // by a budget
	away          int  // calls that get no answer
	open          int  // connections
	// evicting is called at every eviction; it may be nil.
	evicting func()
	// says replaces the server's own answers, but for a status of 0; it may be nil.
	says  func(r *http.Request) (status int, body string)
	calls []string
}

// connection counts the connections that are open.
func (s *apiServer) connection(_ net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state { //nolint:exhaustive // between the two it is open
	case http.StateNew:
		s.open++
	case http.StateClosed:
		s.open--
	}
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, r.Method+" "+r.URL.Path)
	if s.away > 0 {
		s.away--
		panic(http.ErrAbortHandler)
	}
	if s.says != nil {
		if status, body := s.says(r); status != 0 {
			w.WriteHeader(status)
			s.write(w, body)
			return
		}
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/eviction"):
		if s.evicting != nil {
			s.evicting()
		}
		if s.held {
			http.Error(w, `{"message":"budget b holds it"}`, http.StatusTooManyRequests)
			return
		}
		s.pod = false
		w.WriteHeader(http.StatusCreated)
	case r.URL.Path == "/api/v1/pods":
		items := "[]"
		if s.pod {
			items = `[{"metadata":{"name":"p","namespace":"d","uid":"u","ownerReferences":[{"kind":"ReplicaSet","controller":true}]}}]`
		}
		s.write(w, `{"items":`+items+`}`)
	case s.gone:
		http.Error(w, `{"code":404}`, http.StatusNotFound)
	case r.Method == http.MethodDelete:
		s.gone = true
		s.write(w, "{}")
	case r.Method == http.MethodPatch:
		var patch struct{ Spec struct{ Unschedulable bool } }
		if json.NewDecoder(r.Body).Decode(&patch) == nil {
			s.unschedulable = patch.Spec.Unschedulable
		}
		s.node(w)
	default:
		s.node(w)
	}
}

func (s *apiServer) node(w http.ResponseWriter) {
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": "m-1", "uid": "n"}, "spec": map[string]any{"unschedulable": s.unschedulable},
		"status": map[string]any{
			"nodeInfo":   map[string]any{"bootID": "b-1", "kubeletVersion": "v1.30.0"},
			"conditions": []any{map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
		},
	})
	if err != nil {
		panic(err)
	}
	s.write(w, string(raw))
}

func (*apiServer) write(
	w http.ResponseWriter, text string) {
	_, _ = w.Write([]byte(text))
} //nolint:errcheck // the client sees it

type rig struct {
	*apiServer
	t      *testing.T
	access kube.Config
	intent json.RawMessage
	clock  clock.Clock
	poll   time.Duration
	// forgets is why no intent can be written down.
	forgets         error
	lines, progress []string
	// refuse is the controller's answer to a request for access.
	refuse error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, apiServer: &apiServer{}, intent: json.RawMessage("{}"), clock: clock.Real(),
		poll: 10 * time.Millisecond}
	srv := httptest.NewUnstartedServer(r.apiServer)
	srv.Config.ConnState = r.connection
	srv.StartTLS()
	t.Cleanup(srv.Close)
	r.access = kube.Config{Server: srv.URL, Token: "t",
		CAPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})}
	return r
}

func (r *rig) executor() *cluster.Executor {
	return cluster.New(cluster.Config{Clock: r.clock, Poll: r.poll,
		Access: func(context.Context, string) (cluster.Access, error) {
			return cluster.Access{Config: r.access, TokenID: "abcdef", TokenSecret: "s", TokenLife: time.Hour}, r.refuse
		}})
}

func (r *rig) do(ctx context.Context, a *fleetv1.ClusterAction, timeout time.Duration) (executor.Result, error) {
	a.NodeName, a.ClusterRef = "m-1", "prod"
	return r.executor().Execute(ctx, executor.Job{
		Spec: &fleetv1.CommandSpec{CommandId: "c-1", TimeoutMs: int32(timeout.Milliseconds()),
			Action: &fleetv1.CommandSpec_Cluster{Cluster: a}},
		Intent: r.intent, Hard: ctx, StartedAt: r.clock.Now(),
		Logf:     func(format string, args ...any) { r.lines = append(r.lines, fmt.Sprintf(format, args...)) },
		Progress: func(percent int, message string) { r.progress = append(r.progress, fmt.Sprint(percent, " ", message)) },
		UpdateIntent: func(_ context.Context, v any) (err error) {
			if r.forgets != nil {
				return r.forgets
			}
			r.intent, err = json.Marshal(v)
			return err
		},
	})
}

func (r *rig) wants(got executor.Result, err error, o fleetv1.CommandResult_Outcome, reason baremetalv1.Reason) {
	r.t.Helper()
	if err != nil || got.Outcome != o || got.Reason != reason {
		r.t.Errorf("it ended as %v %v %q (%v), want %v %v; calls %v", got.Outcome, got.Reason, got.Message, err, o, reason,
			r.calls)
	}
}

func drain() *fleetv1.ClusterAction { return &fleetv1.ClusterAction{Act: "drain", BootId: "b-1"} }

const none = baremetalv1.Reason_REASON_UNSPECIFIED

// TestADrainOutlivesAnAPIServerThatIsAway for as long as its time lasts.
func TestADrainOutlivesAnAPIServerThatIsAway(t *testing.T) {
	r := newRig(t)
	r.pod, r.away = true, 3
	got, err := r.do(t.Context(), drain(), time.Minute)
	r.wants(got, err, fleetv1.CommandResult_SUCCEEDED, none)
	if got.Evidence["node_drained"] != "1" || !r.unschedulable {
		t.Errorf("%v", got.Evidence)
	}
	r = newRig(t)
	r.away = 1 << 20
	got, err = r.do(t.Context(), drain(), 200*time.Millisecond)
	r.wants(got, err, fleetv1.CommandResult_FAILED, baremetalv1.Reason_CLUSTER_UNREACHABLE)
}

// TestACrashAtEveryPlace: the next life ends what the first has begun, and knows whose cordon it is.
func TestACrashAtEveryPlace(t *testing.T) {
	for _, point := range []*failpoint.Point{cluster.AfterCordon, executor.AfterEffect} {
		for _, held := range []bool{false, true} {
			r := newRig(t)
			r.pod, r.held = true, held
			scope := failpoint.NewScope()
			scope.Set(point.Name(), failpoint.Error().At(1))
			if _, err := r.do(failpoint.With(t.Context(), scope), drain(), time.Minute); !errors.Is(err, failpoint.ErrInjected) {
				t.Fatalf("%s: %v", point.Name(), err)
			}
			e := cluster.New(cluster.Config{})
			if v, err := e.Resume(t.Context(), executor.Job{}); err != nil || !v.GoOn {
				t.Fatalf("%s: it resumes with %+v %v", point.Name(), v, err)
			}
			timeout := time.Minute
			if held {
				timeout = 200 * time.Millisecond
			}
			got, err := r.do(t.Context(), drain(), timeout)
			if held {
				r.wants(got, err, fleetv1.CommandResult_FAILED, baremetalv1.Reason_DRAIN_BLOCKED)
			} else {
				r.wants(got, err, fleetv1.CommandResult_SUCCEEDED, none)
			}
			if r.unschedulable == held {
				t.Errorf("%s, held %v: cordoned %v", point.Name(), held, r.unschedulable)
			}
		}
	}
}

// TestWhoStopsIt: a cancel takes the cordon back, a stop of the agent leaves all to the next life.
func TestWhoStopsIt(t *testing.T) {
	for _, cause := range []error{executor.ErrCanceled, executor.ErrShutdown} {
		r := newRig(t)
		r.pod, r.held = true, true
		ctx, cancel := context.WithCancelCause(t.Context())
		r.evicting = func() { cancel(cause) }
		got, err := r.do(ctx, drain(), time.Minute)
		if errors.Is(cause, executor.ErrShutdown) {
			if !errors.Is(err, executor.ErrInterrupted) || !r.unschedulable {
				t.Errorf("a stop: %+v %v, cordoned %v", got, err, r.unschedulable)
			}
			continue
		}
		r.wants(got, err, fleetv1.CommandResult_CANCELED, baremetalv1.Reason_CANCELED_BY_REQUEST)
		if r.unschedulable {
			t.Error("the cordon stays")
		}
	}
}

// TestWhatTheControllerRefuses is the command's reason.
func TestWhatTheControllerRefuses(t *testing.T) {
	r := newRig(t)
	r.refuse = failure.NotFound("CLUSTER_NOT_FOUND", "gone")
	got, err := r.do(t.Context(), drain(), time.Minute)
	r.wants(got, err, fleetv1.CommandResult_FAILED, baremetalv1.Reason_CLUSTER_NOT_FOUND)
	if len(r.calls) != 0 {
		t.Errorf("the cluster was asked: %v", r.calls)
	}
	e := cluster.New(cluster.Config{})
	_, settled, err := e.Prepare(t.Context(),
		&fleetv1.CommandSpec{Action: &fleetv1.CommandSpec_Cluster{Cluster: &fleetv1.ClusterAction{Act: "explode"}}})
	if err != nil || settled == nil || settled.Outcome != fleetv1.CommandResult_REFUSED {
		t.Errorf("an act that nobody knows: %+v %v", settled, err)
	}
}

// TestWaits: what a Node lacks is said in words.
func TestWaits(t *testing.T) {
	n := func(boot, version, ready string) *kube.Node {
		out := &kube.Node{}
		text := `{"status":{"nodeInfo":{"bootID":"` + boot + `","kubeletVersion":"` + version +
			`"},"conditions":[{"type":"Ready","status":"` + ready + `"}]}}`
		if err := json.Unmarshal([]byte(text), out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	m := kube.Machine{BootID: "b-1"}
	for want, got := range map[string]string{
		"":                         cluster.Waits(n("b-1", "v1", "True"), m, "v1"),
		"shows boot b-0":           cluster.Waits(n("b-0", "v1", "True"), m, ""),
		"shows boot none":          cluster.Waits(n("", "v1", "True"), m, ""),
		"is not ready":             cluster.Waits(n("b-1", "v1", "Unknown"), m, ""),
		"runs kubelet v1, and not": cluster.Waits(n("b-1", "v1", "True"), m, "v2"),
		"has not said anything":    cluster.Waits(&kube.Node{}, kube.Machine{}, ""),
	} {
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestKilledAtEachEffect(t *testing.T) {
	executortest.Run(t, cluster.Declaration, func(t *testing.T) executortest.World {
		r := newRig(t)
		r.pod = true
		evicted := 0
		r.evicting = func() { evicted++ }
		a := drain()
		a.NodeName, a.ClusterRef = "m-1", "prod"
		return executortest.World{
			Spec: &fleetv1.CommandSpec{
				CommandId: "c-1", TimeoutMs: 60_000, Action: &fleetv1.CommandSpec_Cluster{Cluster: a},
			},
			Executor: func() executor.Executor { return r.executor() },
			Effects: func() int {
				r.mu.Lock()
				defer r.mu.Unlock()
				return evicted
			},
		}
	})
}
