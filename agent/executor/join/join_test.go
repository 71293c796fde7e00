package join_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/join"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/kubeadm"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

const ours, theirs = "sha256:ours", "sha256:theirs"

// machine is one whose kubeadm does as the test sets.
type machine struct {
	in    kubeadm.Membership
	does  error
	leads kubeadm.Membership // what kubeadm leads to
	// stays: what runs cannot be ended.
	stays error
	// unread: which cluster it is in cannot be read, from when kubeadm has run or at once.
	unread      error
	unreadAfter bool
	// undone is the error of kubeadm reset.
	undone error
	// prints has the output of kubeadm, a stream and its text each; nil is the usual output.
	prints [][2]string
	// during runs while kubeadm does.
	during func()
	calls  []string
	asked  kubeadm.JoinRequest
}

func (m *machine) Membership(context.Context) (kubeadm.Membership, error) {
	if m.unread != nil && (!m.unreadAfter || len(m.calls) > 0) {
		return kubeadm.Membership{}, m.unread
	}
	return m.in, nil
}

var usually = [][2]string{
	{"stdout", "[preflight] all is well\n"},
	{"stderr", "error execution phase kubelet-start: Unauthorized\nTo see the stack trace execute with --v=5\n"},
}

func (m *machine) Join(_ context.Context, e effect.Cause, r kubeadm.JoinRequest, output func(string, []byte)) error {
	prints := m.prints
	if prints == nil {
		prints = usually
	}
	for _, s := range prints {
		output(s[0], []byte(s[1]))
	}
	if m.during != nil {
		m.during()
	}
	m.calls = append(m.calls, "join "+e.CommandID)
	m.in, m.asked = m.leads, r
	return m.does
}

func (m *machine) EndJoin(context.Context, effect.Cause, string) error {
	m.calls = append(m.calls, "end")
	return m.stays
}

func (m *machine) UndoJoin(context.Context, effect.Cause, func(string, []byte)) error {
	m.calls = append(m.calls, "undo")
	m.in = kubeadm.Membership{}
	return m.undone
}

func member(ca string) kubeadm.Membership {
	return kubeadm.Membership{Joined: true, Server: "https://api:6443", CAHashes: []string{ca}}
}

type rig struct {
	t        *testing.T
	m        *machine
	material func() (join.Material, error)
	asked    int
}

func newRig(t *testing.T) *rig {
	return &rig{t: t, m: &machine{leads: member(ours)}, material: func() (join.Material, error) {
		return join.Material{APIServer: "api:6443", CAHashes: []string{ours}, Token: "id.secret"}, nil
	}}
}

func (r *rig) executor() *join.Executor {
	return join.New(join.Config{Machine: r.m, Clock: clock.Real(), Dir: "/run/x",
		Material: func(context.Context, string) (join.Material, error) {
			r.asked++
			return r.material()
		}})
}

func job(ctx context.Context) executor.Job {
	return executor.Job{
		Spec: &fleetv1.CommandSpec{CommandId: "c-1", Action: &fleetv1.CommandSpec_Join{Join: &fleetv1.JoinAction{
			ClusterRef: "prod", NodeName: "m-1", CaHashes: []string{ours},
		}}},
		Intent: json.RawMessage("{}"), Hard: ctx, StartedAt: time.Now(), Logf: func(string, ...any) {},
		Output:   func(string, []byte) {},
		Progress: func(int, string) {},
	}
}

func (r *rig) execute(ctx context.Context) executor.Result {
	r.t.Helper()
	got, err := r.executor().Execute(ctx, job(ctx))
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func (r *rig) wants(got executor.Result, o fleetv1.CommandResult_Outcome, reason baremetalv1.Reason, calls ...string) {
	r.t.Helper()
	if got.Outcome != o || got.Reason != reason || !slices.Equal(r.m.calls, calls) {
		r.t.Errorf("it ended as %v %v %q by %v; want %v %v by %v", got.Outcome, got.Reason, got.Message, r.m.calls, o, reason,
			calls)
	}
}

const (
	succeeded = fleetv1.CommandResult_SUCCEEDED
	failed    = fleetv1.CommandResult_FAILED
	none      = baremetalv1.Reason_REASON_UNSPECIFIED
)

func TestAMachineJoins(t *testing.T) {
	r := newRig(t)
	got := r.execute(t.Context())
	r.wants(got, succeeded, none, "join c-1", "end")
	if got.Evidence["joined_cluster_ca"] != ours || got.Evidence["joined_by"] != "kubeadm" {
		t.Errorf("the evidence is %v", got.Evidence)
	}
	if r.m.asked.Token != "id.secret" || r.m.asked.NodeName != "m-1" || r.m.asked.APIServer != "api:6443" {
		t.Errorf("kubeadm was told %+v", r.m.asked)
	}
}

func TestAMemberIsLeftAsItIs(t *testing.T) {
	r := newRig(t)
	r.m.in = member(ours)
	got := r.execute(t.Context())
	r.wants(got, succeeded, none)
	if got.Evidence["joined_by"] != "before" || r.asked != 0 {
		t.Errorf("%v; the token was asked for %d times", got.Evidence, r.asked)
	}
}

func TestAMemberOfAnotherClusterIsRefused(t *testing.T) {
	r := newRig(t)
	r.m.in = member(theirs)
	_, settled, err := r.executor().Prepare(t.Context(), job(t.Context()).Spec)
	if err != nil || settled == nil || settled.Outcome != fleetv1.CommandResult_REFUSED ||
		settled.Reason != baremetalv1.Reason_CLUSTER_OTHER_MEMBER {
		t.Fatalf("%v %v", settled, err)
	}
	r.wants(r.execute(t.Context()), fleetv1.CommandResult_REFUSED, baremetalv1.Reason_CLUSTER_OTHER_MEMBER)
	bare := job(t.Context()).Spec
	bare.GetJoin().CaHashes = nil
	if _, settled, err = r.executor().Prepare(t.Context(), bare); err != nil || settled == nil ||
		settled.Reason != baremetalv1.Reason_CLUSTER_NOT_FOUND {
		t.Errorf("without a pinned CA: %v %v", settled, err)
	}
}

func TestWhatIsLeftIsRemovedFirst(t *testing.T) {
	r := newRig(t)
	r.m.in = kubeadm.Membership{Begun: true}
	r.wants(r.execute(t.Context()), succeeded, none, "undo", "join c-1", "end")
}

// TestWhatCountsIsTheMachine: neither kubeadm's success nor its failure does.
func TestWhatCountsIsTheMachine(t *testing.T) {
	r := newRig(t)
	r.m.does = errors.New("exit status 1")
	r.wants(r.execute(t.Context()), succeeded, none, "join c-1", "end")

	r = newRig(t)
	r.m.leads = kubeadm.Membership{}
	got := r.execute(t.Context())
	r.wants(got, failed, baremetalv1.Reason_KUBEADM_FAILED, "join c-1", "end")
	if !got.Retryable {
		t.Error("another attempt may not help")
	}
	r = newRig(t)
	r.m.leads, r.m.does = kubeadm.Membership{}, errors.New("exit status 1")
	if got = r.execute(t.Context()); !strings.Contains(got.Message,
		"exit status 1: error execution phase kubelet-start: Unauthorized;") {
		t.Errorf("it does not say what kubeadm says: %q", got.Message)
	}

	r = newRig(t)
	r.m.leads, r.m.does = kubeadm.Membership{Begun: true}, errors.New("exit status 1")
	r.wants(r.execute(t.Context()), failed, baremetalv1.Reason_KUBEADM_FAILED, "join c-1", "end")

	r = newRig(t)
	r.m.leads, r.m.does = kubeadm.Membership{}, kubeadm.ErrNoKubeadm
	if got := r.execute(t.Context()); got.Retryable || !strings.Contains(got.Message, "not on the machine") {
		t.Errorf("without kubeadm: %+v", got)
	}

	r = newRig(t)
	r.m.stays = errors.New("it does not die")
	r.wants(r.execute(t.Context()), fleetv1.CommandResult_UNKNOWN, baremetalv1.Reason_OUTCOME_UNKNOWN, "join c-1", "end")
}

func TestTheMaterial(t *testing.T) {
	r := newRig(t)
	good := r.material
	r.material = func() (join.Material, error) {
		if r.asked == 1 {
			return join.Material{}, failure.Unavailable("CONTROLLER_DRAINING", "later")
		}
		return good()
	}
	r.wants(r.execute(t.Context()), succeeded, none, "join c-1", "end")
	if r.asked != 2 {
		t.Errorf("asked %d times", r.asked)
	}

	r = newRig(t)
	r.material = func() (join.Material, error) { return join.Material{CAHashes: []string{theirs}}, nil }
	if got := r.execute(t.Context()); got.Outcome != failed || !strings.Contains(got.Message, "CA has changed") ||
		slices.Contains(r.m.calls, "join c-1") {
		t.Errorf("another CA than the command's: %+v by %v", got, r.m.calls)
	}

	r = newRig(t)
	r.material = func() (join.Material, error) { return join.Material{}, failure.NotFound("CLUSTER_NOT_FOUND", "gone") }
	r.wants(r.execute(t.Context()), failed, baremetalv1.Reason_CLUSTER_NOT_FOUND, "end")
}

func TestItIsStopped(t *testing.T) {
	r := newRig(t)
	r.m.leads, r.m.does = kubeadm.Membership{Begun: true}, executor.ErrCanceled
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(executor.ErrCanceled)
	got, err := r.executor().Execute(ctx, job(t.Context()))
	if err != nil || got.Outcome != fleetv1.CommandResult_CANCELED {
		t.Errorf("cancelled: %+v %v", got, err)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(executor.ErrShutdown)
	if _, err := r.executor().Execute(ctx, job(ctx)); !errors.Is(err, executor.ErrInterrupted) {
		t.Errorf("the agent stops: %v", err)
	}
}

// TestAnAgentThatDies comes back and reads the machine.
func TestAnAgentThatDies(t *testing.T) {
	for _, point := range []*failpoint.Point{join.BeforeKubeadm, executor.AfterEffect} {
		scope := failpoint.NewScope()
		scope.Set(point.Name(), failpoint.Error().At(1))
		ctx := failpoint.With(t.Context(), scope)
		r := newRig(t)
		if _, err := r.executor().Execute(ctx, job(ctx)); !errors.Is(err, failpoint.ErrInjected) {
			t.Fatalf("%s: %v", point.Name(), err)
		}
		began := slices.Contains(r.m.calls, "join c-1")
		v, err := r.executor().Resume(t.Context(), job(t.Context()))
		switch {
		case err != nil:
			t.Fatal(err)
		case began && (v.Settled == nil || v.Settled.Outcome != succeeded):
			t.Errorf("%s: it has joined, and resumes with %+v", point.Name(), v)
		case !began && !v.GoOn:
			t.Errorf("%s: nothing has happened, and it resumes with %+v", point.Name(), v)
		case !slices.Contains(r.m.calls, "end"):
			t.Errorf("%s: what may run was not ended", point.Name())
		}
		if v.GoOn {
			r.wants(r.execute(t.Context()), succeeded, none, "end", "join c-1", "end")
		}
	}
	r := newRig(t)
	r.m.stays = errors.New("it does not die")
	if v, err := r.executor().Resume(t.Context(), job(t.Context())); err != nil || v.Settled == nil ||
		v.Settled.Outcome != fleetv1.CommandResult_UNKNOWN {
		t.Errorf("what cannot be ended: %+v %v", v, err)
	}
}

// TestWhatKubeadmSaysIsWrong: a failure names kubeadm's complaint, and the log has all of its output.
func TestWhatKubeadmSaysIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		does error
		says [][2]string
		want string
	}{
		"an error": {errors.New("exit status 1"), usually,
			"exit status 1: error execution phase kubelet-start: Unauthorized; its output"},
		"its last line": {errors.New("exit status 2"), [][2]string{{"stderr", "usage:\nunknown flag\n\n"}},
			"exit status 2: unknown flag; its output"},
		"on stderr alone": {errors.New("exit status 1"), [][2]string{{"stderr", "no disk"}, {"stdout", "bye"}},
			"exit status 1: no disk; its output"},
		"no word": {errors.New("exit status 1"), [][2]string{{"stdout", "error of no account\n"}},
			"exit status 1; its output"},
		"content": {nil, usually, "kubeadm is content, and the kubelet has no credentials of the cluster; its output"},
	} {
		r := newRig(t)
		r.m.leads, r.m.does, r.m.prints = kubeadm.Membership{}, c.does, c.says
		j, logged := job(t.Context()), [][2]string{}
		j.Output = func(stream string, data []byte) { logged = append(logged, [2]string{stream, string(data)}) }
		got, err := r.executor().Execute(t.Context(), j)
		if err != nil || !strings.HasPrefix(got.Message, c.want) {
			t.Errorf("%s: %q, %v", name, got.Message, err)
		}
		if !slices.Equal(logged, c.says) {
			t.Errorf("%s: the log has %q", name, logged)
		}
	}
	r := newRig(t)
	r.m.leads, r.m.does = kubeadm.Membership{}, &effect.Refusal{Kind: effect.ErrUnsupported}
	r.wants(r.execute(t.Context()), failed, baremetalv1.Reason_CAPABILITY_MISSING, "join c-1", "end")
}

// TestAMachineThatCannotBeRead: nothing is begun on it, and what was begun is unknown.
func TestAMachineThatCannotBeRead(t *testing.T) {
	r := newRig(t)
	r.m.unread = errors.New("i/o")
	if _, settled, err := r.executor().Prepare(t.Context(), job(t.Context()).Spec); !errors.Is(err, r.m.unread) {
		t.Errorf("prepare: %+v %v", settled, err)
	}
	if got, err := r.executor().Execute(t.Context(), job(t.Context())); !errors.Is(err, r.m.unread) || len(r.m.calls) > 0 {
		t.Errorf("execute: %+v %v by %v", got, err, r.m.calls)
	}
	v, err := r.executor().Resume(t.Context(), job(t.Context()))
	if err != nil || v.Settled == nil || v.Settled.Outcome != fleetv1.CommandResult_UNKNOWN {
		t.Errorf("resume: %+v %v", v, err)
	}
	r = newRig(t)
	r.m.unread, r.m.unreadAfter = errors.New("i/o"), true
	r.wants(r.execute(t.Context()), fleetv1.CommandResult_UNKNOWN, baremetalv1.Reason_OUTCOME_UNKNOWN, "join c-1", "end")
}

func TestWhatIsLeftCannotBeRemoved(t *testing.T) {
	r := newRig(t)
	r.m.in, r.m.undone = kubeadm.Membership{Begun: true}, errors.New("exit status 1")
	got := r.execute(t.Context())
	r.wants(got, failed, baremetalv1.Reason_KUBEADM_FAILED, "undo", "end")
	if !strings.HasPrefix(got.Message, "kubeadm reset: exit status 1") || r.asked != 0 {
		t.Errorf("%q; the token was asked for %d times", got.Message, r.asked)
	}
}

// TestItIsStoppedWhileTheControllerIsAway: nothing is joined any more, even where the controller comes back at once.
func TestItIsStoppedWhileTheControllerIsAway(t *testing.T) {
	r := newRig(t)
	good := r.material
	ctx, cancel := context.WithCancelCause(t.Context())
	r.material = func() (join.Material, error) {
		if r.asked == 1 {
			cancel(executor.ErrCanceled)
			return join.Material{}, failure.Unavailable("CONTROLLER_DRAINING", "later")
		}
		return good()
	}
	got, err := r.executor().Execute(ctx, job(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	r.wants(got, fleetv1.CommandResult_CANCELED, baremetalv1.Reason_CANCELED_BY_REQUEST, "end")
}

// TestAnAgentThatStopsWhileKubeadmRuns: a join that was done is reported; any other is left to the next start of the
// agent.
func TestAnAgentThatStopsWhileKubeadmRuns(t *testing.T) {
	for does, want := range map[error]error{nil: nil, context.Canceled: executor.ErrInterrupted} {
		r := newRig(t)
		ctx, stop := context.WithCancelCause(t.Context())
		r.m.does, r.m.during = does, func() { stop(executor.ErrShutdown) }
		got, err := r.executor().Execute(ctx, job(ctx))
		if !errors.Is(err, want) || (got.Outcome == succeeded) != (want == nil) {
			t.Errorf("kubeadm ends with %v: %+v %v", does, got, err)
		}
	}
	r := newRig(t)
	ctx, stop := context.WithCancelCause(t.Context())
	stop(executor.ErrShutdown)
	r.m.stays = context.Canceled
	if v, err := r.executor().Resume(ctx, job(ctx)); !errors.Is(err, executor.ErrInterrupted) {
		t.Errorf("resume: %+v %v", v, err)
	}
}

// TestAMemberOfAnotherClusterIsNotTakenForOurs after a restart: the next execution refuses it.
func TestAMemberOfAnotherClusterIsNotTakenForOurs(t *testing.T) {
	r := newRig(t)
	r.m.in = member(theirs)
	if v, err := r.executor().Resume(t.Context(), job(t.Context())); err != nil || !v.GoOn {
		t.Errorf("%+v %v", v, err)
	}
	r = newRig(t)
	r.m.leads = member(theirs)
	r.wants(r.execute(t.Context()), failed, baremetalv1.Reason_KUBEADM_FAILED, "join c-1", "end")
}

func TestKilledAtEachEffect(t *testing.T) {
	t.Parallel()
	executortest.Run(t, join.Declaration, func(t *testing.T) executortest.World {
		r := newRig(t)
		return executortest.World{
			Spec: job(t.Context()).Spec, Executor: func() executor.Executor { return r.executor() },
			Effects: func() (n int) {
				for _, call := range r.m.calls {
					if strings.HasPrefix(call, "join ") {
						n++
					}
				}
				return n
			},
		}
	})
}
