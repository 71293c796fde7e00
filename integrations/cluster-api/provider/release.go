package provider

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/ingot-metal/ingot/integrations/cluster-api/api/v1alpha1"
)

// release releases the machine, and then removes the finalizer.
func (p pass) release(ctx context.Context) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(p.m, v1alpha1.Finalizer) {
		return 0, nil
	}
	claim, ok := ParseClaim(p.m.Annotations[v1alpha1.ClaimAnnotation])
	if !ok {
		return 0, p.letGo(ctx)
	}
	w, err := p.Fleet.work(ctx, claim)
	if err != nil {
		return 0, err
	}
	machine, err := p.Fleet.machine(ctx, claim.MachineID)
	if err != nil {
		return 0, err
	}
	carries := machine.GetLabels()[ClaimLabel]
	if machine == nil || carries != claim.ID && (carries != "" || !w.begun()) {
		// Nothing of it is ours.
		return 0, p.letGo(ctx)
	}
	if carries == "" {
		// The label was removed, also by a process that died afterwards. No other object may take the machine meanwhile.
		if machine, err = p.Fleet.label(ctx, machine, claim.ID); err != nil || machine == nil {
			return soon, err
		}
	}
	switch d := nextRelease(machine, w, p.m.Spec.Erase); d.step {
	case stepWait:
		p.ready(d)
	case stepCancel:
		p.ready(d)
		return p.Poll / 5, p.Fleet.cancel(ctx, d.operation)
	case stepRelease:
		if machine, err = p.Fleet.label(ctx, machine, ""); err != nil || machine == nil {
			return soon, err
		}
		return 0, p.letGo(ctx)
	default:
		o, err := p.Fleet.do(ctx, claim, d.step, order{image: p.m.Spec.Image, workflow: w.erasure.GetWorkflowId()})
		if err != nil {
			return 0, err
		}
		p.ready(pending(ReasonReleasing, o))
	}
	return p.Poll / 5, nil
}

func (p pass) letGo(ctx context.Context) error {
	return p.change(ctx, func(m *v1alpha1.IngotMachine) { controllerutil.RemoveFinalizer(m, v1alpha1.Finalizer) })
}
