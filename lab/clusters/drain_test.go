//go:build clusters

package clusters

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/cluster"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
)

func drainOf(node string) *fleetv1.ClusterAction {
	return &fleetv1.ClusterAction{Act: "drain", ClusterRef: "prod", NodeName: node, SystemUuid: "UUID-" + node}
}

// node registers a Node as its kubelet would.
func (r *rig) node(name string) kubetest.Node {
	n := kubetest.Node{Name: name, SystemUUID: "uuid-" + name, BootID: "boot-" + name, Version: "v1.30.0", Ready: true}
	r.PutNode(n)
	return n
}

// TestDrain: pods of the machine stay, pods that run elsewhere too go, and a pod that may not be evicted stops the
// drain.
func TestDrain(t *testing.T) {
	r := newRig(t)
	t.Run("moves what can run elsewhere", func(t *testing.T) {
		r.t = t
		r.node("n-1")
		for _, p := range []kubetest.Pod{
			{Name: "web-1", Node: "n-1", Owner: "ReplicaSet"}, {Name: "db-0", Node: "n-1", Owner: "StatefulSet"},
			{Name: "agent-x", Node: "n-1", Owner: "DaemonSet"}, {Name: "static-n-1", Node: "n-1", Mirror: true},
		} {
			r.PutPod(p)
		}
		got := r.must(act{ClusterAction: drainOf("n-1")}, succeeded)
		if got.Evidence["node_drained"] != "2" || got.Evidence["node_identity"] != "system_uuid" ||
			got.Evidence["cluster"] != "prod" {
			t.Errorf("the evidence is %v", got.Evidence)
		}
		for name, stays := range map[string]bool{"web-1": false, "db-0": false, "agent-x": true, "static-n-1": true} {
			if r.pod(name) != stays {
				t.Errorf("pod %s is there: %v", name, !stays)
			}
		}
		if !r.unschedulable("n-1") {
			t.Error("the drained Node takes pods")
		}
		again := r.must(act{ClusterAction: drainOf("n-1")}, succeeded)
		if again.Evidence["node_drained"] != "0" {
			t.Errorf("a second drain moved %s pods", again.Evidence["node_drained"])
		}
		r.must(act{ClusterAction: &fleetv1.ClusterAction{Act: "uncordon", ClusterRef: "prod", NodeName: "n-1"}}, succeeded)
		if r.unschedulable("n-1") {
			t.Error("the Node takes no pods after all")
		}
	})
	t.Run("stops before anything is lost", func(t *testing.T) {
		r.t = t
		r.node("n-2")
		r.PutPod(kubetest.Pod{Name: "web-2", Node: "n-2", Owner: "ReplicaSet"})
		r.PutPod(kubetest.Pod{Name: "alone", Node: "n-2"})
		r.PutPod(kubetest.Pod{Name: "data", Node: "n-2", Owner: "ReplicaSet", EmptyDir: true})
		got := r.must(act{ClusterAction: drainOf("n-2")}, failed)
		if got.Reason.String() != "DRAIN_BLOCKED" || !strings.Contains(got.Message, "default/alone") ||
			!strings.Contains(got.Message, "default/data") {
			t.Errorf("it says %v %q", got.Reason, got.Message)
		}
		if r.unschedulable("n-2") || !r.pod("web-2") {
			t.Error("a drain that was refused has changed something")
		}
		allowed := drainOf("n-2")
		allowed.Force = true
		if got := r.must(act{ClusterAction: allowed}, failed); strings.Contains(got.Message, "default/alone") {
			t.Errorf("it was allowed and says %q", got.Message)
		}
		allowed.DeleteLocalData = true
		r.must(act{ClusterAction: allowed}, succeeded)
		for _, name := range []string{"web-2", "alone", "data"} {
			if r.pod(name) {
				t.Errorf("pod %s is left", name)
			}
		}
	})
	t.Run("takes the Node away when asked", func(t *testing.T) {
		r.t = t
		r.node("n-3")
		leave := drainOf("n-3")
		leave.RemoveNode = true
		got := r.must(act{ClusterAction: leave}, succeeded)
		if got.Evidence["node_removed"] == "" || r.Admin.Get("/api/v1/nodes/n-3") != nil {
			t.Errorf("the Node is there, and the evidence is %v", got.Evidence)
		}
		if got := r.must(act{ClusterAction: leave}, succeeded); got.Evidence["node_drained"] != "0" {
			t.Errorf("leaving twice gives %v", got.Evidence)
		}
		if got := r.must(act{ClusterAction: drainOf("n-3")}, failed); got.Reason.String() != "CLUSTER_NODE_NOT_READY" {
			t.Errorf("a Node that is not there: %v", got.Reason)
		}
	})
	t.Run("leaves another machine's Node alone", func(t *testing.T) {
		r.t = t
		r.node("n-4")
		r.PutPod(kubetest.Pod{Name: "web-4", Node: "n-4", Owner: "ReplicaSet"})
		other := drainOf("n-4")
		other.SystemUuid = "somebody-else"
		if got := r.must(act{ClusterAction: other}, failed); got.Reason.String() != "CLUSTER_NODE_MISMATCH" {
			t.Errorf("it says %v", got.Reason)
		}
		if r.unschedulable("n-4") || !r.pod("web-4") {
			t.Error("something was done to another machine's Node")
		}
	})
}

// TestDrainRespectsBudgets: a pod stays for as long as its budget holds it; the drain names it, and goes on when it
// may.
func TestDrainRespectsBudgets(t *testing.T) {
	r := newRig(t)
	r.node("n-1")
	r.PutBudget("web", "web", 0)
	uid := r.PutPod(kubetest.Pod{Name: "web-1", Node: "n-1", Owner: "ReplicaSet", Labels: map[string]string{"app": "web"}})
	got := r.must(act{ClusterAction: drainOf("n-1"), timeout: 2 * time.Second}, failed)
	if got.Reason.String() != "DRAIN_BLOCKED" || !strings.Contains(got.Message, "default/web-1") ||
		!strings.Contains(got.Message, "web needs 1 healthy") {
		t.Errorf("it says %v %q", got.Reason, got.Message)
	}
	if now := r.Admin.Get(kubetest.PodPath("web-1")); kubetest.Text(now, "metadata", "uid") != uid {
		t.Error("the pod that the budget holds is gone")
	}
	if r.unschedulable("n-1") {
		t.Error("the cordon of a drain that was given up stays")
	}
	r.PutBudget("web", "web", 1)
	r.must(act{ClusterAction: drainOf("n-1")}, succeeded)
	if r.pod("web-1") {
		t.Error("the pod is there although it may go")
	}
}

// TestDrainWaitsForPodsToEnd: an eviction that was accepted is not the end of a pod.
func TestDrainWaitsForPodsToEnd(t *testing.T) {
	r := newRig(t)
	r.node("n-1")
	r.PutPod(kubetest.Pod{Name: "slow", Node: "n-1", Owner: "ReplicaSet", Grace: 600})
	got := r.must(act{ClusterAction: drainOf("n-1"), timeout: 2 * time.Second}, failed)
	if !strings.Contains(got.Message, "default/slow is ending") {
		t.Errorf("it says %q", got.Message)
	}
	got = r.must(act{ClusterAction: drainOf("n-1"), onLog: func(line string) {
		if strings.HasPrefix(line, "Node %s is cordoned") {
			r.Admin.Delete(kubetest.PodPath("slow"))
		}
	}}, succeeded)
	if got.Evidence["node_drained"] == "" {
		t.Errorf("the evidence is %v", got.Evidence)
	}
}

// TestADrainThatIsCancelled removes its cordon; a foreign one stays.
func TestADrainThatIsCancelled(t *testing.T) {
	r := newRig(t)
	for _, foreign := range []bool{false, true} {
		name := map[bool]string{false: "n-ours", true: "n-theirs"}[foreign]
		r.node(name)
		r.PutPod(kubetest.Pod{Name: "slow-" + name, Node: name, Owner: "ReplicaSet", Grace: 600})
		if foreign {
			r.Admin.Merge("/api/v1/nodes/"+name, kubetest.Object{"spec": kubetest.Object{"unschedulable": true}})
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		r.must(act{ClusterAction: drainOf(name), ctx: ctx, onLog: func(line string) {
			if strings.HasPrefix(line, "evicted") {
				cancel(executor.ErrCanceled)
			}
		}}, canceled)
		if r.unschedulable(name) != foreign {
			t.Errorf("%s is cordoned: %v", name, !foreign)
		}
		cancel(nil)
	}
}

// TestADrainGoesOnAfterACrash: the agent dies after the cordon and after an eviction, and the next life knows whose
// cordon it is.
func TestADrainGoesOnAfterACrash(t *testing.T) {
	r := newRig(t)
	for _, point := range []string{cluster.AfterCordon.Name(), executor.AfterEffect.Name()} {
		name := "n-" + strings.ReplaceAll(point, ".", "-")
		r.node(name)
		r.PutPod(kubetest.Pod{Name: "held-" + name, Node: name, Owner: "ReplicaSet", Grace: 600})
		a := act{ClusterAction: drainOf(name), ctx: crashing(t.Context(), point)}
		var intent []byte
		a.kept = func(raw []byte) { intent = raw }
		if _, err := r.do(a); !errors.Is(err, failpoint.ErrInjected) {
			t.Fatalf("%s: nothing crashed: %v", point, err)
		}
		if !r.unschedulable(name) {
			t.Fatalf("%s: not cordoned", point)
		}
		a = act{ClusterAction: drainOf(name), intent: intent, timeout: 2 * time.Second}
		r.must(a, failed)
		if r.unschedulable(name) {
			t.Errorf("%s: the next life does not know that the cordon is ours", point)
		}
	}
}
