// Package join joins the agent's own machine to a Kubernetes cluster with kubeadm. It is done when the kubelet has
// credentials of the cluster whose CA was pinned.
//
// # What is authoritative
//
// What the kubelet was given (kubelet.conf): a machine that is in the cluster already is left as it is, one that is in
// another is refused. The token is asked for when kubeadm is about to run, and stands in one file for as long as it
// does.
//
// # Failure handling
//
// kubeadm runs in the machine's service manager under the command's name and is ended before anything is said about it.
// After a restart of the agent the world is read: joined, or not; what a join that was cut short has left is removed by
// kubeadm reset before another one starts.
package join
