// Package kube speaks to the API server of a Kubernetes cluster about one Node: it reads it, cordons it, evicts its
// pods, makes the token of a join.
//
// # What is authoritative
//
// The cluster. Nothing is remembered here: whoever goes on after a crash asks again, and every call says what is to be
// so, not what to change. An eviction names the pod by its uid, so that a pod of the same name that came later is never
// meant.
//
// # Failure handling
//
// What the API server refuses is an error with a reason: the certificate is not of the cluster's CA or nobody answers
// (CLUSTER_UNREACHABLE), the credentials do not do (CLUSTER_ACCESS_DENIED). Being asked to wait (429 with Retry-After,
// or a disruption budget that is used up) is no error of the cluster's and is told apart.
package kube
