// Package helm tests the chart of deploy/helm and the manifests of deploy/kubernetes: on a real kube-apiserver, with
// Helm, and with the pods run as processes against a real Postgres. There is no kubelet, scheduler or controller
// manager; the tests do their part.
package helm
