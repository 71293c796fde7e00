package kube

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/hwid"
)

// Node has the fields that are read of a Node (core/v1).
type Node struct {
	Metadata Meta `json:"metadata"`
	Spec     struct {
		Unschedulable bool `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type               string    `json:"type"`
			Status             string    `json:"status"`
			Reason             string    `json:"reason"`
			Message            string    `json:"message"`
			LastTransitionTime time.Time `json:"lastTransitionTime"`
		} `json:"conditions"`
		NodeInfo struct {
			SystemUUID     string `json:"systemUUID"`
			BootID         string `json:"bootID"`
			KubeletVersion string `json:"kubeletVersion"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

// Meta is the part of an object's metadata that is read.
type Meta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	Annotations       map[string]string `json:"annotations"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp"`
	OwnerReferences   []Owner           `json:"ownerReferences"`
	Continue          string            `json:"continue"`
}

// Owner is one of an object's owners.
type Owner struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Controller bool   `json:"controller"`
}

// Ready reports whether the Node's condition Ready is true, since when, and why not.
func (n *Node) Ready() (ready bool, since time.Time, why string) {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True", c.LastTransitionTime, strings.TrimSpace(c.Reason + ": " + c.Message)
		}
	}
	return false, time.Time{}, "its kubelet has not said anything yet"
}

// Machine has the known values that distinguish a machine from others: the kernel's boot id and the DMI system UUID.
type Machine struct{ BootID, SystemUUID string }

// The ways in which a Node is recognized as a machine.
const (
	ByBootID     = "boot_id"
	BySystemUUID = "system_uuid"
	// ByName: the machine's inventory, or the Node's kubelet, has no value by which they could be compared.
	ByName = "name"
)

// Recognize returns the evidence that a Node is the machine; empty means that it is another one. A boot id is random:
// the same one is the same machine, running the same boot.
func Recognize(n *Node, m Machine) string {
	info := n.Status.NodeInfo
	bootID, uuid := same(info.BootID, m.BootID), same(info.SystemUUID, m.SystemUUID)
	switch {
	case bootID == yes:
		return ByBootID
	case uuid == yes:
		return BySystemUUID
	case uuid == no || bootID == no:
		return ""
	}
	return ByName
}

type answer int

const (
	unknown answer = iota
	yes
	no
)

// same compares two ids, of which either may be unknown.
func same(a, b string) answer {
	switch same, known := hwid.SameUUID(a, b); {
	case !known:
		return unknown
	case same:
		return yes
	}
	return no
}

func nodePath(name string) string { return "/api/v1/nodes/" + url.PathEscape(name) }

// Node reads a Node.
func (c *Client) Node(ctx context.Context, name string) (*Node, error) {
	var n Node
	return &n, c.do(ctx, call{method: http.MethodGet, path: nodePath(name)}, &n)
}

// Cordon sets whether pods may be placed on the Node. The Node must be the one that was read: a new one of the same
// name is another Node.
func (c *Client) Cordon(ctx context.Context, n *Node, on bool) (*Node, error) {
	var out Node
	return &out,
		c.do(ctx, call{method: http.MethodPatch, path: nodePath(n.Metadata.Name), kind: kindMerge, body: map[string]any{
			"metadata": map[string]any{"uid": n.Metadata.UID},
			"spec":     map[string]any{"unschedulable": on},
		}}, &out)
}

// DeleteNode takes the Node that was read out of the cluster. One that is gone is no error.
func (c *Client) DeleteNode(ctx context.Context, n *Node) error {
	err := c.do(ctx, call{method: http.MethodDelete, path: nodePath(n.Metadata.Name), kind: kindJSON,
		body: deleteOptions(n.Metadata.UID, nil)}, nil)
	if NotFound(err) || is(err, http.StatusConflict) {
		return nil
	}
	return err
}

// deleteOptions returns options that identify the object by its uid.
func deleteOptions(uid string, grace *int64) map[string]any {
	out := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]any{"uid": uid}}
	if grace != nil {
		out["gracePeriodSeconds"] = *grace
	}
	return out
}
