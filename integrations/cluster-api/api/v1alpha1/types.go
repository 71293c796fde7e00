package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Finalizer keeps an IngotMachine until its machine is released.
const Finalizer = "ingotmachine.infrastructure.cluster.x-k8s.io"

// ClaimAnnotation names the machine that an IngotMachine has chosen, and the id of its claim: MACHINE/ID. It is written
// before anything happens to the machine, and moves with the object to another management cluster.
const ClaimAnnotation = "ingotmachine.infrastructure.cluster.x-k8s.io/claim"

// Initialization reports whether the infrastructure was provisioned; it stays true.
type Initialization struct {
	Provisioned *bool `json:"provisioned,omitempty"`
}

// IngotMachine is one machine of the fleet in a cluster.
type IngotMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IngotMachineSpec   `json:"spec,omitempty"`
	Status IngotMachineStatus `json:"status,omitempty,omitzero"`
}

// IngotMachineSpec selects a machine, its installation, and its end.
type IngotMachineSpec struct {
	// ProviderID is ingot://MACHINE, set once the machine is provisioned. The Node must have the same.
	ProviderID string `json:"providerID,omitempty"`
	// Selector is a filter of ListMachines. One free machine that matches it is taken.
	Selector string `json:"selector"`
	// Image is the image_ref that is installed.
	Image string `json:"image"`
	// Agentless installs the image without Ingot's agent.
	Agentless bool `json:"agentless,omitempty"`
	// Erase erases the disks when the machine is released, and installs the image without bootstrap data. Without it the
	// system stays as it is until the machine is taken again.
	Erase bool `json:"erase"`
}

// IngotMachineStatus is what was observed of the machine.
type IngotMachineStatus struct {
	Initialization Initialization             `json:"initialization,omitempty,omitzero"`
	Addresses      []clusterv1.MachineAddress `json:"addresses,omitempty"`
	// FailureDomain is the machine's site.
	FailureDomain string `json:"failureDomain,omitempty"`
	// MachineID is the machine in Ingot.
	MachineID string `json:"machineID,omitempty"`
	// OperationID is the operation of the last step.
	OperationID string             `json:"operationID,omitempty"`
	Conditions  []metav1.Condition `json:"conditions,omitempty"`
}

// IngotMachineList is a list of IngotMachines.
type IngotMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IngotMachine `json:"items"`
}

// IngotMachineTemplate is what IngotMachines of a set are made from.
type IngotMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IngotMachineTemplateSpec `json:"spec,omitempty"`
}

// IngotMachineTemplateSpec holds the template.
type IngotMachineTemplateSpec struct {
	Template IngotMachineTemplateResource `json:"template"`
}

// IngotMachineTemplateResource is the template.
type IngotMachineTemplateResource struct {
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	Spec       IngotMachineSpec     `json:"spec"`
}

// IngotMachineTemplateList is a list of IngotMachineTemplates.
type IngotMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IngotMachineTemplate `json:"items"`
}

// IngotCluster is what a cluster has besides its machines.
type IngotCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IngotClusterSpec   `json:"spec,omitempty"`
	Status IngotClusterStatus `json:"status,omitempty,omitzero"`
}

// IngotClusterSpec is the place of the cluster.
type IngotClusterSpec struct {
	// ControlPlaneEndpoint is the address of the API server, such as that of a load balancer or a virtual address. Ingot
	// makes none. It may stand in the Cluster instead.
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`
	// Selector is a filter of ListMachines; the sites of those that match are the failure domains. Empty: all sites.
	Selector string `json:"selector,omitempty"`
}

// IngotClusterStatus is what was observed of the cluster.
type IngotClusterStatus struct {
	Initialization Initialization            `json:"initialization,omitempty,omitzero"`
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`
	Conditions     []metav1.Condition        `json:"conditions,omitempty"`
}

// IngotClusterList is a list of IngotClusters.
type IngotClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IngotCluster `json:"items"`
}

// IngotClusterTemplate is what the IngotCluster of a ClusterClass is made from.
type IngotClusterTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IngotClusterTemplateSpec `json:"spec,omitempty"`
}

// IngotClusterTemplateSpec holds the template.
type IngotClusterTemplateSpec struct {
	Template IngotClusterTemplateResource `json:"template"`
}

// IngotClusterTemplateResource is the template.
type IngotClusterTemplateResource struct {
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	Spec       IngotClusterSpec     `json:"spec"`
}

// IngotClusterTemplateList is a list of IngotClusterTemplates.
type IngotClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IngotClusterTemplate `json:"items"`
}

// GetConditions returns the conditions.
func (m *IngotMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions.
func (m *IngotMachine) SetConditions(c []metav1.Condition) { m.Status.Conditions = c }

// GetConditions returns the conditions.
func (c *IngotCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *IngotCluster) SetConditions(to []metav1.Condition) { c.Status.Conditions = to }
