package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func (i Initialization) copied() Initialization {
	if i.Provisioned != nil {
		v := *i.Provisioned
		i.Provisioned = &v
	}
	return i
}

func copies[T any](in []T, one func(T) T) []T {
	if in == nil {
		return nil
	}
	out := make([]T, len(in))
	for i := range in {
		out[i] = one(in[i])
	}
	return out
}

func condition(c metav1.Condition) metav1.Condition { return *c.DeepCopy() }

func (m IngotMachine) copied() IngotMachine {
	m.ObjectMeta = *m.ObjectMeta.DeepCopy()
	m.Status.Initialization = m.Status.Initialization.copied()
	m.Status.Addresses = copies(m.Status.Addresses, func(a clusterv1.MachineAddress) clusterv1.MachineAddress { return a })
	m.Status.Conditions = copies(m.Status.Conditions, condition)
	return m
}

func (c IngotCluster) copied() IngotCluster {
	c.ObjectMeta = *c.ObjectMeta.DeepCopy()
	c.Status.Initialization = c.Status.Initialization.copied()
	c.Status.FailureDomains = copies(c.Status.FailureDomains,
		func(d clusterv1.FailureDomain) clusterv1.FailureDomain { return *d.DeepCopy() })
	c.Status.Conditions = copies(c.Status.Conditions, condition)
	return c
}

func (t IngotMachineTemplate) copied() IngotMachineTemplate {
	t.ObjectMeta = *t.ObjectMeta.DeepCopy()
	t.Spec.Template.ObjectMeta = *t.Spec.Template.ObjectMeta.DeepCopy()
	return t
}

func (t IngotClusterTemplate) copied() IngotClusterTemplate {
	t.ObjectMeta = *t.ObjectMeta.DeepCopy()
	t.Spec.Template.ObjectMeta = *t.Spec.Template.ObjectMeta.DeepCopy()
	return t
}

// DeepCopyObject implements runtime.Object.
func (m *IngotMachine) DeepCopyObject() runtime.Object { return m.DeepCopy() }

// DeepCopy returns a copy that shares nothing.
func (m *IngotMachine) DeepCopy() *IngotMachine {
	out := m.copied()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (c *IngotCluster) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// DeepCopy returns a copy that shares nothing.
func (c *IngotCluster) DeepCopy() *IngotCluster {
	out := c.copied()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (t *IngotMachineTemplate) DeepCopyObject() runtime.Object {
	out := t.copied()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (t *IngotClusterTemplate) DeepCopyObject() runtime.Object {
	out := t.copied()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *IngotMachineList) DeepCopyObject() runtime.Object {
	return &IngotMachineList{l.TypeMeta, *l.ListMeta.DeepCopy(), copies(l.Items, IngotMachine.copied)}
}

// DeepCopyObject implements runtime.Object.
func (l *IngotClusterList) DeepCopyObject() runtime.Object {
	return &IngotClusterList{l.TypeMeta, *l.ListMeta.DeepCopy(), copies(l.Items, IngotCluster.copied)}
}

// DeepCopyObject implements runtime.Object.
func (l *IngotMachineTemplateList) DeepCopyObject() runtime.Object {
	return &IngotMachineTemplateList{l.TypeMeta, *l.ListMeta.DeepCopy(), copies(l.Items, IngotMachineTemplate.copied)}
}

// DeepCopyObject implements runtime.Object.
func (l *IngotClusterTemplateList) DeepCopyObject() runtime.Object {
	return &IngotClusterTemplateList{l.TypeMeta, *l.ListMeta.DeepCopy(), copies(l.Items, IngotClusterTemplate.copied)}
}
