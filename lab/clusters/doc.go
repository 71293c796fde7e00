// Package clusters holds what Ingot does with Kubernetes clusters against a real kube-apiserver on a real etcd: `make
// test-clusters` builds and installs both. The tests play what a cluster has besides, kubelets and controllers, through
// the same API.
package clusters
