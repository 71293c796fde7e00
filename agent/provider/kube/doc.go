// Package kube speaks to the API server of a Kubernetes cluster about one Node: it reads it, cordons it, evicts its
// pods, makes the token of a join.
//
// # Sources of truth
//
// The cluster. Nothing is remembered here: after a crash the cluster is asked again, and every call sets a state
// instead of a change. An eviction names the pod by its uid, so that a pod of the same name that came later is never
// meant.
//
// # Failure handling
//
// What the API server refuses is an error with a reason: the certificate is not of the cluster's CA or there is no
// answer (CLUSTER_UNREACHABLE), the credentials do not suffice (CLUSTER_ACCESS_DENIED). A request to wait (429 with
// Retry-After, or a disruption budget that is used up) is no error of the cluster and is returned separately.
package kube
