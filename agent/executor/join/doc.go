// Package join joins the agent's own machine to a Kubernetes cluster with kubeadm. It is done when the kubelet has
// credentials of the cluster whose CA was pinned.
//
// # Sources of truth
//
// What the kubelet was given (kubelet.conf): a machine that is in the cluster already stays unchanged, one that is in
// another is refused. The token is asked for when kubeadm is about to run, and stands in one file for as long as it
// does.
//
// # Failure handling
//
// kubeadm runs in the machine's service manager under the command's name and is ended before a result is returned.
// After a restart of the agent the world is read: joined, or not; kubeadm reset removes the remains of an interrupted
// join before another one starts.
package join
