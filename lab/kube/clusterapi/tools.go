//go:build tools

// Package clusterapi pins what the provider of Cluster API is held against. It is a module of its own, so that the
// product's stays small.
package clusterapi

import _ "sigs.k8s.io/cluster-api"
