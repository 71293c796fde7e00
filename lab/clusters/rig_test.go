//go:build clusters

package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/cluster"
	"github.com/ingot-metal/ingot/agent/provider/kube"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
)

// rig is one API server, and Ingot's account in it: the one that is documented.
type rig struct {
	*kubetest.Server
	t     *testing.T
	token string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := kubetest.Start(t)
	return &rig{Server: s, t: t, token: s.ServiceAccount("ingot", documented(t)...)}
}

// documented returns the role that the documentation has operators grant.
func documented(t *testing.T) []kubetest.Object {
	t.Helper()
	f, err := os.Open("../../deploy/kubernetes/ingot-access.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was read to its end
	var out []kubetest.Object
	for dec := yaml.NewDecoder(f); ; {
		var o kubetest.Object
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
}

// access returns the controller's answer to a site agent.
func (r *rig) access() kube.Config {
	return kube.Config{Server: r.URL, CAPEM: r.CA.PEM, Token: r.token}
}

// act is one command of a site agent.
type act struct {
	*fleetv1.ClusterAction
	timeout time.Duration
	change  func(*cluster.Access)
	ctx     context.Context //nolint:containedctx // the test's, or one that it ends
	intent  json.RawMessage
	// kept gets the intent whenever it is written, onLog the form of every line.
	kept  func(raw []byte)
	onLog func(line string)
}

// do executes an act as a site agent does.
func (r *rig) do(a act) (executor.Result, error) {
	r.t.Helper()
	if a.timeout == 0 {
		a.timeout = time.Minute
	}
	if a.ctx == nil {
		a.ctx = r.t.Context()
	}
	if a.intent == nil {
		a.intent = json.RawMessage("{}")
	}
	e := cluster.New(cluster.Config{Clock: clock.Real(), Poll: 50 * time.Millisecond,
		Access: func(context.Context, string) (cluster.Access, error) {
			out := cluster.Access{Config: r.access(), TokenID: "abc123", TokenSecret: "0123456789abcdef", TokenLife: time.Minute}
			if a.change != nil {
				a.change(&out)
			}
			return out, nil
		}})
	spec := &fleetv1.CommandSpec{
		CommandId: "c-1", OperationId: "op-1", TargetId: "m-1", TimeoutMs: int32(a.timeout.Milliseconds()),
		Action: &fleetv1.CommandSpec_Cluster{Cluster: a.ClusterAction},
	}
	if _, settled, err := e.Prepare(a.ctx, spec); settled != nil || err != nil {
		r.t.Fatalf("prepare: %v %v", settled, err)
	}
	return e.Execute(a.ctx, executor.Job{
		Spec: spec, Intent: a.intent, Hard: a.ctx, StartedAt: time.Now(), Progress: func(int, string) {},
		Logf: func(format string, args ...any) {
			r.t.Logf(format, args...)
			if a.onLog != nil {
				a.onLog(format)
			}
		},
		Output: func(string, []byte) {},
		UpdateIntent: func(_ context.Context, v any) error {
			raw, err := json.Marshal(v)
			if a.kept != nil {
				a.kept(raw)
			}
			return err
		},
	})
}

// must is do where the outcome is known.
func (r *rig) must(a act, want fleetv1.CommandResult_Outcome) executor.Result {
	r.t.Helper()
	got, err := r.do(a)
	if err != nil || got.Outcome != want {
		r.t.Fatalf("%s gives %v %v %q (%v), want %v", a.GetAct(), got.Outcome, got.Reason, got.Message, err, want)
	}
	return got
}

// The outcomes.
const (
	succeeded = fleetv1.CommandResult_SUCCEEDED
	failed    = fleetv1.CommandResult_FAILED
	canceled  = fleetv1.CommandResult_CANCELED
)

func (r *rig) unschedulable(node string) bool {
	r.t.Helper()
	return kubetest.In(r.Admin.Get("/api/v1/nodes/"+node), "spec", "unschedulable") == true
}

func (r *rig) pod(name string) bool {
	r.t.Helper()
	return r.Admin.Get(kubetest.PodPath(name)) != nil
}

// crashing returns a context in which an executor dies at a failpoint.
func crashing(ctx context.Context, point string) context.Context {
	scope := failpoint.NewScope()
	scope.Set(point, failpoint.Error().At(1))
	return failpoint.With(ctx, scope)
}
