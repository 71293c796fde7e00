package kubetest

import (
	"net/http"
	"time"
)

// Node is what a kubelet would say of a machine.
type Node struct {
	Name, SystemUUID, BootID, Version string
	Ready                             bool
}

// PutNode plays the kubelet: it registers the Node, or reports anew.
func (s *Server) PutNode(n Node) {
	s.t.Helper()
	path := "/api/v1/nodes/" + n.Name
	if s.Admin.Get(path) == nil {
		s.Admin.Create("/api/v1/nodes", Object{"apiVersion": "v1", "kind": "Node", "metadata": Object{"name": n.Name}})
	}
	status := "False"
	if n.Ready {
		status = "True"
	}
	s.Admin.Merge(path+"/status", Object{"status": Object{
		"nodeInfo": Object{
			"systemUUID": n.SystemUUID, "bootID": n.BootID, "kubeletVersion": n.Version, "machineID": "", "kernelVersion": "",
			"osImage":                 "",
			"containerRuntimeVersion": "", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
		},
		"conditions": []Object{{
			"type": "Ready", "status": status, "reason": "TestKubelet", "message": "said by the test",
			"lastHeartbeatTime": now(), "lastTransitionTime": now(),
		}},
	}})
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// Pod is what a test wants of a pod.
type Pod struct {
	Name, Node string
	// Owner is the kind of its controller; empty for none.
	Owner    string
	Labels   map[string]string
	EmptyDir bool
	// Mirror makes it the picture of a static pod.
	Mirror bool
	// Grace is how long it takes to end, in seconds: until it has passed, or DeletePod plays the kubelet's part.
	Grace int
}

// PutPod makes a pod that runs on a Node, in the namespace default, and returns its uid.
func (s *Server) PutPod(p Pod) string {
	s.t.Helper()
	meta := Object{"name": p.Name, "labels": p.Labels, "annotations": Object{}}
	if p.Mirror {
		meta["annotations"] = Object{"kubernetes.io/config.mirror": "x"}
	}
	if p.Owner != "" {
		meta["ownerReferences"] = []Object{{
			"apiVersion": "apps/v1", "kind": p.Owner, "name": "owner", "uid": "00000000-0000-0000-0000-000000000001",
			"controller": true,
		}}
	}
	spec := Object{
		"nodeName": p.Node, "containers": []Object{{"name": "c", "image": "none"}}, "terminationGracePeriodSeconds": p.Grace,
		// No controller evicts for a Node that is not ready.
		"tolerations": []Object{{"operator": "Exists"}},
	}
	if p.EmptyDir {
		spec["volumes"] = []Object{{"name": "data", "emptyDir": Object{}}}
	}
	made := s.Admin.Create("/api/v1/namespaces/default/pods",
		Object{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
	s.Admin.Merge(PodPath(p.Name)+"/status", Object{"status": Object{
		"phase": "Running", "conditions": []Object{{"type": "Ready", "status": "True", "lastTransitionTime": now()}},
	}})
	return Text(made, "metadata", "uid")
}

// PodPath is where a pod is.
func PodPath(name string) string { return "/api/v1/namespaces/default/pods/" + name }

// PutBudget makes a disruption budget for pods with the label app, and plays the controller that sets how many may go.
func (s *Server) PutBudget(name, app string, allowed int) {
	s.t.Helper()
	const budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	if s.Admin.Get(budgets+"/"+name) == nil {
		s.Admin.Create(budgets, Object{
			"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": Object{"name": name},
			"spec": Object{"minAvailable": 1, "selector": Object{"matchLabels": Object{"app": app}}},
		})
	}
	s.Admin.Merge(budgets+"/"+name+"/status", Object{"status": Object{
		"disruptionsAllowed": allowed, "currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 1 + allowed,
		"observedGeneration": 1,
	}})
}

// ServiceAccount makes an account with the rules of a cluster role and returns a bearer token for it.
func (s *Server) ServiceAccount(name string, objects ...Object) string {
	s.t.Helper()
	for _, o := range objects {
		s.Admin.Create(collection(o), o)
	}
	return s.Token("kube-system", name)
}

// Token returns a bearer token for a service account.
func (s *Server) Token(namespace, account string) string {
	s.t.Helper()
	path := "/api/v1/namespaces/" + namespace + "/serviceaccounts/" + account + "/token"
	answer := s.Admin.Must(http.MethodPost, path, Object{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": Object{"expirationSeconds": 3600},
	})
	return Text(answer, "status", "token")
}

// collection is where objects of a kind are made.
func collection(o Object) string {
	ns := Text(o, "metadata", "namespace")
	switch Text(o, "kind") {
	case "ServiceAccount":
		return "/api/v1/namespaces/" + ns + "/serviceaccounts"
	case "ClusterRole":
		return "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	case "ClusterRoleBinding":
		return "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	case "Role":
		return "/apis/rbac.authorization.k8s.io/v1/namespaces/" + ns + "/roles"
	default:
		return "/apis/rbac.authorization.k8s.io/v1/namespaces/" + ns + "/rolebindings"
	}
}
