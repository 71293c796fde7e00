// Package v1alpha1 holds the Cluster API infrastructure resources of Ingot, by contract v1beta2: IngotCluster,
// IngotMachine, and their templates. config/crd has their schemas.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group of all infrastructure providers, which the roles of Cluster API's own controllers cover.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1alpha1"}

// AddToScheme registers the resources.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &IngotCluster{}, &IngotClusterList{}, &IngotClusterTemplate{},
		&IngotClusterTemplateList{}, &IngotMachine{}, &IngotMachineList{}, &IngotMachineTemplate{},
		&IngotMachineTemplateList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
