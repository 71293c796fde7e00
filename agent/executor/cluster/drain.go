package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider/kube"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

// tidyTime bounds taking a cordon back. It fits between the act's own limit and the step's.
const tidyTime = 5 * time.Second

// drain empties the Node, and takes it out of the cluster where that was asked for.
func (w *work) drain(ctx context.Context) (executor.Result, error) {
	n, by, err := w.node(ctx)
	switch {
	case kube.NotFound(err) && w.a.GetRemoveNode():
		return executor.Succeeded(
			w.seen(map[string]string{evidence.NodeDrained: "0", evidence.NodeRemoved: "there was no Node"})), nil
	case kube.NotFound(err):
		return w.noNode(), nil
	case err != nil:
		return w.ended(ctx, err)
	}
	evicted, err := w.empty(ctx, n)
	if err == nil && w.a.GetRemoveNode() {
		err = w.remove(ctx, n)
	}
	if err != nil {
		r, err := w.ended(ctx, err)
		if err != nil {
			return r, err
		}
		return w.takeBack(ctx, n, r), nil
	}
	proof := w.seen(map[string]string{evidence.NodeDrained: strconv.Itoa(evicted), evidence.NodeIdentity: by})
	if w.a.GetRemoveNode() {
		proof[evidence.NodeRemoved] = w.e.cfg.Clock.Now().UTC().Format(time.RFC3339)
	}
	return executor.Succeeded(proof), nil
}

// empty cordons the Node and evicts its pods until none is left that should go. It returns the number of those that
// were evicted.
func (w *work) empty(ctx context.Context, n *kube.Node) (int, error) {
	if err := w.cordon(ctx, n); err != nil {
		return 0, err
	}
	gone, going := 0, map[string]struct{}{}
	for first := true; ; first = false {
		pods, err := w.pods(ctx)
		if err != nil {
			return gone, err
		}
		todo, blocked := split(pods, kube.Allow{Unmanaged: w.a.GetForce(), LocalData: w.a.GetDeleteLocalData()})
		if len(blocked) > 0 {
			return gone, drainBlocked("pods may not be evicted", blocked)
		}
		here := map[string]bool{}
		for i := range todo {
			here[todo[i].Metadata.UID] = true
		}
		for uid := range going {
			if !here[uid] {
				gone++
				delete(going, uid)
			}
		}
		if len(todo) == 0 {
			w.job.Logf("Node %s is drained; %d pods went", n.Metadata.Name, gone)
			return gone, nil
		}
		if first {
			w.job.Logf("Node %s is cordoned; %d pods are to go", n.Metadata.Name, len(todo))
		}
		left, err := w.evict(ctx, todo, going)
		if err != nil {
			return gone, err
		}
		total := gone + len(todo)
		w.job.Progress(100*gone/total, fmt.Sprintf("%d of %d pods are gone; %s", gone, total, names(left)))
		if end := w.pause(ctx); end != nil {
			return gone, w.outOfTime(ctx, left, end)
		}
	}
}

// outOfTime returns an error with the pods that are left, or end after a cancel.
func (w *work) outOfTime(ctx context.Context, left []string, end error) error {
	if context.Cause(ctx) != nil {
		return end
	}
	return drainBlocked("the time for the drain is up", left)
}

func drainBlocked(why string, pods []string) error {
	e := failure.Precondition("DRAIN_BLOCKED", "%s: %s", why, names(pods))
	e.Retryable = true
	return e
}

// maxNames is how many pods a message names.
const maxNames = 5

func names(pods []string) string {
	if len(pods) > maxNames {
		return strings.Join(pods[:maxNames], "; ") + fmt.Sprintf("; and %d more", len(pods)-maxNames)
	}
	return strings.Join(pods, "; ")
}

// split returns the pods that should be evicted, and the names of those that may not.
func split(pods []kube.Pod, allow kube.Allow) (todo []kube.Pod, blocked []string) {
	for i := range pods {
		switch fate, why := kube.FateOf(&pods[i], allow); {
		case fate == kube.Blocks && pods[i].Metadata.DeletionTimestamp == nil:
			blocked = append(blocked, pods[i].Name()+": "+why)
		case fate != kube.Leave:
			todo = append(todo, pods[i])
		}
	}
	slices.Sort(blocked)
	return todo, blocked
}

// evict asks for every pod that is not on its way, and returns the ones that are left, each with the reason.
func (w *work) evict(ctx context.Context, pods []kube.Pod, going map[string]struct{}) (left []string, err error) {
	for i := range pods {
		p := &pods[i]
		if p.Metadata.DeletionTimestamp != nil {
			going[p.Metadata.UID] = struct{}{}
			left = append(left, p.Name()+" is ending")
			continue
		}
		var answer kube.Evicted
		err := w.again(ctx, func() (err error) {
			answer, err = w.c.EvictPod(ctx, p)
			return err
		})
		switch {
		case err != nil:
			return nil, fmt.Errorf("evict %s: %w", p.Name(), err)
		case answer.Accepted:
			w.job.Logf("evicted %s", p.Name())
			going[p.Metadata.UID] = struct{}{}
			left = append(left, p.Name()+" is ending")
		default:
			left = append(left, p.Name()+": "+answer.Blocked)
		}
	}
	if err := executor.AfterEffect.HitCtx(ctx); err != nil {
		return nil, err
	}
	slices.Sort(left)
	return left, nil
}

func (w *work) pods(ctx context.Context) (pods []kube.Pod, err error) {
	err = w.again(ctx, func() (err error) {
		pods, err = w.c.Pods(ctx, w.a.GetNodeName())
		return err
	})
	return pods, err
}

// cordon keeps new pods away. That it is ours is written down first.
func (w *work) cordon(ctx context.Context, n *kube.Node) error {
	if n.Spec.Unschedulable {
		return nil
	}
	w.in.Cordoned = true
	if err := w.job.UpdateIntent(ctx, w.in); err != nil {
		return err
	}
	err := w.again(ctx, func() error {
		now, err := w.c.Cordon(ctx, n, true)
		if err == nil && !now.Spec.Unschedulable {
			return failure.Unavailable("CLUSTER_UNREACHABLE", "the Node still takes pods")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cordon: %w", err)
	}
	return AfterCordon.HitCtx(ctx)
}

// takeBack undoes a cordon of ours after a drain that was not finished.
func (w *work) takeBack(ctx context.Context, n *kube.Node, r executor.Result) executor.Result {
	if !w.in.Cordoned {
		return r
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	if _, err := w.c.Cordon(ctx, n, false); err != nil && !kube.NotFound(err) {
		r.Message += fmt.Sprintf("; the Node stays cordoned, because that could not be taken back: %v", err)
		return r
	}
	r.Message += "; its cordon was taken back"
	return r
}

// remove takes the Node out of the cluster, and sees it gone.
func (w *work) remove(ctx context.Context, n *kube.Node) error {
	if err := w.again(ctx, func() error { return w.c.DeleteNode(ctx, n) }); err != nil {
		return fmt.Errorf("delete the Node: %w", err)
	}
	for {
		now, _, err := w.node(ctx)
		switch {
		case kube.NotFound(err), now != nil && now.Metadata.UID != n.Metadata.UID:
			w.job.Logf("Node %s has left the cluster", n.Metadata.Name)
			return nil
		case err != nil:
			return fmt.Errorf("see the Node gone: %w", err)
		}
		if end := w.pause(ctx); end != nil {
			return fmt.Errorf("see the Node gone: %w", end)
		}
	}
}
