//go:build tools

// Package kube pins what the tests of clusters are held against. It is a module of its own, so that the product's stays
// small.
package kube

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubeadm"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
