package cluster

import (
	"context"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider/kube"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// verify waits for the Node to be there, to be this machine, and to be ready.
func (w *work) verify(ctx context.Context) (executor.Result, error) {
	for last := ""; ; {
		n, by, err := w.node(ctx)
		if err != nil && !kube.NotFound(err) {
			return w.ended(ctx, err)
		}
		why := "cluster " + w.a.GetClusterRef() + " has no Node " + w.a.GetNodeName()
		if err == nil {
			if why = Waits(n, w.machine(), w.a.GetKubeletVersion()); why == "" {
				return w.ready(n, by), nil
			}
		}
		if why != last {
			w.job.Logf("%s", why)
			w.job.Progress(0, why)
			last = why
		}
		if end := w.pause(ctx); end != nil {
			if r, err := w.ended(ctx, end); r.Outcome != fleetv1.CommandResult_FAILED {
				return r, err
			}
			return executor.Failed(baremetalv1.Reason_CLUSTER_NODE_NOT_READY, "%s", why).AndRetry(), nil
		}
	}
}

// Waits returns what a Node lacks to count as the machine in service; empty means nothing.
func Waits(n *kube.Node, m kube.Machine, version string) string {
	info := n.Status.NodeInfo
	ready, _, why := n.Ready()
	switch {
	case m.BootID != "" && info.BootID != m.BootID:
		return "Node " + n.Metadata.Name + " shows boot " + orNone(info.BootID) + ", and the machine runs " + m.BootID
	case !ready:
		return "Node " + n.Metadata.Name + " is not ready: " + why
	case version != "" && info.KubeletVersion != version:
		return "Node " + n.Metadata.Name + " runs kubelet " + orNone(info.KubeletVersion) + ", and not " + version
	}
	return ""
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func (w *work) ready(n *kube.Node, by string) executor.Result {
	_, since, _ := n.Ready()
	w.job.Logf("Node %s is ready since %s (recognized by %s, kubelet %s)", n.Metadata.Name,
		since.UTC().Format(time.RFC3339), by, n.Status.NodeInfo.KubeletVersion)
	return executor.Succeeded(w.seen(map[string]string{
		evidence.NodeReadyAt: since.UTC().Format(time.RFC3339), evidence.NodeIdentity: by,
		evidence.KubeletVersion: n.Status.NodeInfo.KubeletVersion, "node_uid": n.Metadata.UID,
	}))
}
