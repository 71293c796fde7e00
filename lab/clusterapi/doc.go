// Package clusterapi holds the Cluster API provider of integrations/cluster-api against what it works with: a real
// kube-apiserver on a real etcd, Cluster API's own resources and core controllers, and a real controller of Ingot with
// simulated machines. `make test-cluster-api` builds all of them. The tests play bootstrap providers alone: they write
// the secret with bootstrap data.
package clusterapi
