package kube

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Pod has the fields that are read of a pod (core/v1).
type Pod struct {
	Metadata Meta `json:"metadata"`
	Spec     struct {
		Volumes []struct {
			Name     string    `json:"name"`
			EmptyDir *struct{} `json:"emptyDir"`
		} `json:"volumes"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// Name is the pod's name with its namespace.
func (p *Pod) Name() string { return p.Metadata.Namespace + "/" + p.Metadata.Name }

// Fate is what a drain does with a pod.
type Fate int

// The fates of pods.
const (
	// Evict it, as its disruption budget allows.
	Evict Fate = iota
	// Leave it: it belongs to the machine, and would be back at once or cannot be taken away through the API.
	Leave
	// Blocks the drain until an operator has decided about it.
	Blocks
)

// mirror marks the API server's picture of a static pod.
const mirror = "kubernetes.io/config.mirror"

// Allow is what a drain was allowed beyond moving work that is started again elsewhere.
type Allow struct {
	// Unmanaged pods are not started again elsewhere.
	Unmanaged bool
	// LocalData: pods that keep data on the machine.
	LocalData bool
}

// FateOf returns the action of a drain on a pod, and the reason where it blocks.
func FateOf(p *Pod, allow Allow) (fate Fate, why string) {
	owner := controllerOf(p)
	switch {
	case p.Metadata.Annotations[mirror] != "":
		return Leave, ""
	case p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed":
		return Evict, ""
	case owner != nil && owner.Kind == "DaemonSet":
		return Leave, ""
	case owner == nil && !allow.Unmanaged:
		return Blocks, "no controller would start it again elsewhere"
	case localData(p) && !allow.LocalData:
		return Blocks, "it keeps data on the machine (emptyDir)"
	}
	return Evict, ""
}

func controllerOf(p *Pod) *Owner {
	for i := range p.Metadata.OwnerReferences {
		if o := &p.Metadata.OwnerReferences[i]; o.Controller {
			return o
		}
	}
	return nil
}

func localData(p *Pod) bool {
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil {
			return true
		}
	}
	return false
}

// podPage is how many pods one call asks for.
const podPage = "500"

// Pods lists the pods that are bound to a Node, of all namespaces.
func (c *Client) Pods(ctx context.Context, node string) ([]Pod, error) {
	var out []Pod
	q := url.Values{"fieldSelector": {"spec.nodeName=" + node}, "limit": {podPage}}
	for {
		var page struct {
			Metadata Meta  `json:"metadata"`
			Items    []Pod `json:"items"`
		}
		err := c.do(ctx, call{method: http.MethodGet, path: "/api/v1/pods", query: q}, &page)
		if is(err, http.StatusGone) && q.Get("continue") != "" {
			out = nil // the list has expired between two pages
			q.Del("continue")
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if page.Metadata.Continue == "" {
			return out, nil
		}
		q.Set("continue", page.Metadata.Continue)
	}
}

// Evicted is what came of an eviction.
type Evicted struct {
	// Accepted: the pod is going, or is gone.
	Accepted bool
	// Blocked is why it may not go now; RetryAfter when to ask again, 0 where it is unknown.
	Blocked    string
	RetryAfter time.Duration
}

// EvictPod asks the cluster to let a pod go (policy/v1). A disruption budget that is used up is an answer, not an
// error.
func (c *Client) EvictPod(ctx context.Context, p *Pod) (Evicted, error) {
	err := c.do(ctx, call{
		method: http.MethodPost, kind: kindJSON, may429: true,
		path: "/api/v1/namespaces/" + url.PathEscape(p.Metadata.Namespace) + "/pods/" + url.PathEscape(p.Metadata.Name) +
			"/eviction",
		body: map[string]any{
			"apiVersion": "policy/v1", "kind": "Eviction",
			"metadata":      map[string]any{"name": p.Metadata.Name, "namespace": p.Metadata.Namespace},
			"deleteOptions": deleteOptions(p.Metadata.UID, nil),
		},
	}, nil)
	return evicted(err)
}

// evicted distinguishes the answers of the API server: 429 is a budget, 404 and 409 are a pod that is gone or another
// one.
func evicted(err error) (Evicted, error) {
	var r *Refusal
	switch {
	case err == nil, NotFound(err), is(err, http.StatusConflict):
		return Evicted{Accepted: true}, nil
	case is(err, http.StatusTooManyRequests):
		r = refusalOf(err)
		why := r.Message
		if len(r.Details.Causes) > 0 {
			why = r.Details.Causes[0].Message
		}
		return Evicted{Blocked: why, RetryAfter: r.RetryAfter}, nil
	}
	return Evicted{}, err
}
