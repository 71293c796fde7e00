package provider

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/integrations/cluster-api/api/v1alpha1"
	"github.com/ingot-metal/ingot/internal/label"
)

// soon is the delay before a decision is made anew that another write has overtaken.
const soon = 50 * time.Millisecond

// ProviderIDPrefix stands before the machine's id in spec.providerID.
const ProviderIDPrefix = "ingot://"

// MachineReconciler brings IngotMachines and machines of the fleet together.
type MachineReconciler struct {
	kube.Client
	// Live reads past the cache: secrets are not kept in memory.
	Live  kube.Reader
	Fleet *Fleet
	// Poll is how often a machine in service is looked at. One that is being installed or released is looked at five times
	// as often.
	Poll time.Duration
}

// SetupWithManager registers the reconciler.
func (r *MachineReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&v1alpha1.IngotMachine{}).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(ofMachine)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster)).
		Complete(r)
}

// ofMachine names the IngotMachine of a Machine.
func ofMachine(_ context.Context, o kube.Object) []reconcile.Request {
	ref := o.(*clusterv1.Machine).Spec.InfrastructureRef
	if ref.APIGroup != v1alpha1.GroupVersion.Group || ref.Kind != "IngotMachine" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name}}}
}

// ofCluster names the IngotMachines of a Cluster.
func (r *MachineReconciler) ofCluster(ctx context.Context, o kube.Object) (out []reconcile.Request) {
	var list v1alpha1.IngotMachineList
	if err := r.List(ctx, &list, kube.InNamespace(o.GetNamespace()),
		kube.MatchingLabels{clusterv1.ClusterNameLabel: o.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the machines of a cluster", "cluster", o.GetName())
	}
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: kube.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// Reconcile implements reconcile.Reconciler.
func (r *MachineReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m := &v1alpha1.IngotMachine{}
	if err := r.Get(ctx, req.NamespacedName, m); err != nil {
		return ctrl.Result{}, kube.IgnoreNotFound(err)
	}
	owner, cluster, err := r.owners(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	status := m.Status
	status.Conditions = append([]metav1.Condition(nil), status.Conditions...)
	p := pass{r, m, owner, cluster, &status}
	wait, err := p.run(ctx)
	switch {
	case apierrors.IsConflict(err):
		// The object was written meanwhile, or the cache is late: the decision is void.
		return ctrl.Result{RequeueAfter: soon}, nil
	case err != nil:
		d, ingots := refusal(err)
		p.ready(d)
		if ingots {
			ctrl.LoggerFrom(ctx).Info("Ingot refuses", "reason", d.reason, "error", err.Error())
			wait, err = r.Poll, nil
		}
	}
	if saved := r.save(ctx, m, status); saved != nil {
		return ctrl.Result{}, saved
	}
	return ctrl.Result{RequeueAfter: wait}, err
}

// save writes the status if it has changed. An object that is gone needs none.
func (r *MachineReconciler) save(
	ctx context.Context,
	m *v1alpha1.IngotMachine,
	status v1alpha1.IngotMachineStatus,
) error {
	base := m.DeepCopy()
	m.Status = status
	return kube.IgnoreNotFound(r.Status().Patch(ctx, m, kube.MergeFrom(base)))
}

// owners reads the Machine that owns the object, and its Cluster; nil where there are none.
func (r *MachineReconciler) owners(
	ctx context.Context, m *v1alpha1.IngotMachine,
) (owner *clusterv1.Machine, cluster *clusterv1.Cluster, err error) {
	for _, ref := range m.OwnerReferences {
		if ref.Kind != "Machine" || groupOf(ref.APIVersion) != clusterv1.GroupVersion.Group {
			continue
		}
		owner = &clusterv1.Machine{}
		if err := r.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: ref.Name}, owner); err != nil {
			return nil, nil, kube.IgnoreNotFound(err)
		}
		cluster = &clusterv1.Cluster{}
		err = r.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: owner.Spec.ClusterName}, cluster)
		if err != nil {
			return owner, nil, kube.IgnoreNotFound(err)
		}
		return owner, cluster, nil
	}
	return nil, nil, nil
}

// pass is one look at one IngotMachine.
type pass struct {
	*MachineReconciler
	m       *v1alpha1.IngotMachine
	owner   *clusterv1.Machine
	cluster *clusterv1.Cluster
	status  *v1alpha1.IngotMachineStatus
}

// ready sets the condition Ready.
func (p pass) ready(d decision) {
	setReady(&p.status.Conditions, p.m.Generation, d)
	if d.operation != nil {
		p.status.OperationID = d.operation.GetOperationId()
	}
}

// change writes the object's metadata or spec. It fails with a conflict if the object has changed since it was read.
func (p pass) change(ctx context.Context, edit func(*v1alpha1.IngotMachine)) error {
	base := p.m.DeepCopy()
	edit(p.m)
	return p.Patch(ctx, p.m, kube.MergeFromWithOptions(base, kube.MergeFromWithOptimisticLock{}))
}

// run takes the next step and returns after how long to look again; 0 is when something changes.
func (p pass) run(ctx context.Context) (time.Duration, error) {
	if setPaused(&p.status.Conditions, p.m, p.cluster) {
		return 0, nil
	}
	if !p.m.DeletionTimestamp.IsZero() {
		return p.release(ctx)
	}
	switch {
	case p.owner == nil:
		p.ready(decision{reason: ReasonNoOwner, message: "no Machine owns this object"})
		return 0, nil
	case p.cluster == nil:
		p.ready(decision{reason: ReasonNoCluster, message: "there is no Cluster " + p.owner.Spec.ClusterName})
		return p.Poll, nil
	}
	if !controllerutil.ContainsFinalizer(p.m, v1alpha1.Finalizer) {
		if err := p.change(ctx, func(m *v1alpha1.IngotMachine) {
			controllerutil.AddFinalizer(m, v1alpha1.Finalizer)
		}); err != nil {
			return 0, err
		}
	}
	if !isTrue(p.cluster.Status.Initialization.InfrastructureProvisioned) {
		p.ready(decision{reason: ReasonNoCluster, message: "the Cluster's infrastructure is not provisioned"})
		return 0, nil
	}
	if isTrue(p.status.Initialization.Provisioned) {
		return p.observe(ctx)
	}
	if p.owner.Spec.Bootstrap.DataSecretName == nil {
		p.ready(decision{reason: ReasonNoBootstrap, message: "the Machine names no secret with bootstrap data"})
		return 0, nil
	}
	return p.provision(ctx)
}

// provision claims a machine and installs it.
func (p pass) provision(ctx context.Context) (time.Duration, error) {
	claim, ok := ParseClaim(p.m.Annotations[v1alpha1.ClaimAnnotation])
	if !ok {
		return p.choose(ctx)
	}
	w, err := p.Fleet.work(ctx, claim)
	if err != nil {
		return 0, err
	}
	machine, h, err := p.Fleet.hold(ctx, claim, w.begun())
	switch {
	case err != nil:
		return 0, err
	case h == again:
		return soon, nil
	case h != held && !w.begun():
		// Nothing was asked of it: choose another.
		return soon, p.change(ctx, func(m *v1alpha1.IngotMachine) {
			delete(m.Annotations, v1alpha1.ClaimAnnotation)
		})
	case h != held:
		p.ready(lost(h, claim))
		return p.Poll, nil
	}
	p.status.MachineID, p.status.FailureDomain = claim.MachineID, siteOf(machine)
	d := nextInstall(machine, w)
	if d.step == stepInstalled {
		return p.provisioned(ctx, claim, machine, d)
	}
	if d.step != stepWait {
		o := order{image: p.m.Spec.Image, agentless: p.m.Spec.Agentless}
		if o.userData, err = p.bootstrapData(ctx); err != nil {
			return 0, err
		}
		op, err := p.Fleet.do(ctx, claim, d.step, o)
		if err != nil {
			return 0, err
		}
		d = pending(ReasonInstalling, op)
	}
	p.ready(d)
	return p.Poll / 5, nil
}

// choose writes the machine that it chooses into the object, and nothing else.
func (p pass) choose(ctx context.Context) (time.Duration, error) {
	list, err := p.Fleet.candidates(ctx, p.m.Spec.Selector, p.owner.Spec.FailureDomain)
	if err != nil {
		return 0, err
	}
	found := choose(list, string(p.m.UID))
	if found == nil {
		p.ready(decision{reason: ReasonNoFreeMachine, message: fmt.Sprintf(
			"no free machine matches %q in site %q: an admin must have offered it with the label %s=%s, it must be NEW or "+
				"IDLE, or lack a system alone, and have no other claim or owner",
			p.m.Spec.Selector, p.owner.Spec.FailureDomain, label.Offered, label.ClusterAPI)})
		return p.Poll, nil
	}
	claim := Claim{found.GetMachineId(), string(p.m.UID)}
	p.ready(decision{reason: ReasonClaiming, message: "machine " + claim.MachineID})
	return soon, p.change(ctx, func(m *v1alpha1.IngotMachine) {
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[v1alpha1.ClaimAnnotation] = claim.String()
	})
}

// bootstrapData reads the Machine's secret.
func (p pass) bootstrapData(ctx context.Context) (string, error) {
	var secret corev1.Secret
	key := types.NamespacedName{Namespace: p.m.Namespace, Name: *p.owner.Spec.Bootstrap.DataSecretName}
	if err := p.Live.Get(ctx, key, &secret); err != nil {
		return "", fmt.Errorf("read bootstrap data: %w", err)
	}
	if f := string(secret.Data["format"]); f != "" && f != "cloud-config" {
		return "", &refused{ReasonFormat, fmt.Sprintf("the bootstrap data has format %q; the image is given cloud-config", f)}
	}
	return string(secret.Data["value"]), nil
}

// provisioned writes the provider's id, and then that the machine is provisioned.
func (p pass) provisioned(
	ctx context.Context, claim Claim, machine *baremetalv1.Machine, d decision,
) (time.Duration, error) {
	id := ProviderIDPrefix + claim.MachineID
	if p.m.Spec.ProviderID != id {
		if err := p.change(ctx, func(m *v1alpha1.IngotMachine) { m.Spec.ProviderID = id }); err != nil {
			return 0, err
		}
	}
	done := true
	p.status.Initialization.Provisioned = &done
	p.ready(decision{reason: ReasonProvisioned, operation: d.operation})
	p.addresses(ctx, machine)
	return p.Poll, nil
}

// addresses are for people alone: one that cannot be read now is left out.
func (p pass) addresses(ctx context.Context, machine *baremetalv1.Machine) {
	p.status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineHostName, Address: machine.GetMachineId()}}
	ip, err := p.Fleet.address(ctx, machine)
	switch {
	case err != nil:
		ctrl.LoggerFrom(ctx).Info("the address is not known", "error", err.Error())
	case ip != "":
		p.status.Addresses = append(p.status.Addresses,
			clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: ip})
	}
}

// observe sets the conditions of a provisioned machine, and restores a removed label.
func (p pass) observe(ctx context.Context) (time.Duration, error) {
	claim, ok := ParseClaim(p.m.Annotations[v1alpha1.ClaimAnnotation])
	if !ok {
		p.ready(decision{reason: ReasonClaimLost, message: "the annotation " + v1alpha1.ClaimAnnotation + " is gone"})
		return p.Poll, nil
	}
	machine, h, err := p.Fleet.hold(ctx, claim, true)
	switch {
	case err != nil:
		return 0, err
	case h == again:
		return soon, nil
	case h != held:
		p.ready(lost(h, claim))
		return p.Poll, nil
	}
	p.status.MachineID, p.status.FailureDomain = claim.MachineID, siteOf(machine)
	p.ready(health(machine))
	p.addresses(ctx, machine)
	return p.Poll, nil
}
