package provider

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ingot-metal/ingot/integrations/cluster-api/api/v1alpha1"
)

// ClusterReconciler publishes a cluster's API server, and the sites at which its machines may be. It makes nothing, and
// so has no finalizer.
type ClusterReconciler struct {
	kube.Client
	Fleet *Fleet
	// Poll is how often the sites are looked at.
	Poll time.Duration
}

// SetupWithManager registers the reconciler.
func (r *ClusterReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&v1alpha1.IngotCluster{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster)).Complete(r)
}

// ofCluster names the IngotCluster of a Cluster.
func ofCluster(_ context.Context, o kube.Object) []reconcile.Request {
	ref := o.(*clusterv1.Cluster).Spec.InfrastructureRef
	if ref.APIGroup != v1alpha1.GroupVersion.Group || ref.Kind != "IngotCluster" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name}}}
}

// Reconcile implements reconcile.Reconciler.
func (r *ClusterReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := &v1alpha1.IngotCluster{}
	if err := r.Get(ctx, req.NamespacedName, c); err != nil {
		return ctrl.Result{}, kube.IgnoreNotFound(err)
	}
	if _, external := c.Annotations[clusterv1.ManagedByAnnotation]; external || !c.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	cluster, err := r.owner(ctx, c)
	if err != nil || cluster == nil {
		return ctrl.Result{}, err
	}
	base := c.DeepCopy()
	wait, err := r.run(ctx, c, cluster)
	if err != nil {
		d, ingots := refusal(err)
		setReady(&c.Status.Conditions, c.Generation, d)
		if ingots {
			wait, err = r.Poll, nil
		}
	}
	if saved := r.Status().Patch(ctx, c, kube.MergeFrom(base)); saved != nil {
		return ctrl.Result{}, kube.IgnoreNotFound(saved)
	}
	return ctrl.Result{RequeueAfter: wait}, err
}

func (r *ClusterReconciler) run(
	ctx context.Context, c *v1alpha1.IngotCluster, cluster *clusterv1.Cluster,
) (time.Duration, error) {
	if setPaused(&c.Status.Conditions, c, cluster) {
		return 0, nil
	}
	if c.Spec.ControlPlaneEndpoint.Host == "" && cluster.Spec.ControlPlaneEndpoint.Host == "" {
		setReady(&c.Status.Conditions, c.Generation, decision{reason: ReasonNoEndpoint,
			message: "set controlPlaneEndpoint, here or in the Cluster: Ingot makes no load balancer"})
		return 0, nil
	}
	sites, err := r.Fleet.sites(ctx, c.Spec.Selector)
	if err != nil {
		return 0, err
	}
	c.Status.FailureDomains = nil
	for _, site := range sites {
		may := true
		c.Status.FailureDomains = append(c.Status.FailureDomains, clusterv1.FailureDomain{Name: site, ControlPlane: &may})
	}
	done := true
	c.Status.Initialization.Provisioned = &done
	setReady(&c.Status.Conditions, c.Generation, decision{reason: ReasonProvisioned})
	return r.Poll, nil
}

// owner reads the Cluster that owns the object; nil where there is none.
func (r *ClusterReconciler) owner(ctx context.Context, c *v1alpha1.IngotCluster) (*clusterv1.Cluster, error) {
	at := -1
	for i, ref := range c.OwnerReferences {
		if ref.Kind == "Cluster" && groupOf(ref.APIVersion) == clusterv1.GroupVersion.Group {
			at = i
		}
	}
	if at < 0 {
		return nil, nil
	}
	out := &clusterv1.Cluster{}
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.OwnerReferences[at].Name}
	if err := r.Get(ctx, key, out); err != nil {
		return nil, kube.IgnoreNotFound(err)
	}
	return out, nil
}
