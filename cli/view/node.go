package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// lowerState names a node state as it is typed.
func lowerState(n pb.NodeState) string { return strings.ToLower(NodeState(n)) }

// Nodes is the table of `ingot node list`.
func (s Style) Nodes(nodes []*pb.Node, now time.Time) *Table {
	t := &Table{Header: []string{"MACHINE_ID", "STATE", "SINCE", "ATTEMPTS", "PLAN_ID", "GROUP", "LAST_ERROR"}}
	for _, n := range nodes {
		t.Add(n.GetNodeId(), lowerState(n.GetState()), Age(n.GetStateChangedAt(), now),
			strconv.Itoa(int(n.GetInstallAttempts())),
			n.GetPlanId(), n.GetGroup(), Clean(n.GetLastInstallError()))
	}
	return t
}

// Node is the sheet of `ingot node get`.
func (s Style) Node(n *pb.Node, now time.Time) string {
	f := &Fields{}
	f.Add("Machine", n.GetNodeId())
	f.Add("State", lowerState(n.GetState()))
	f.Add("Since", Age(n.GetStateChangedAt(), now))
	f.Add("Plan", n.GetPlanId())
	f.Add("Group", n.GetGroup())
	f.Add("Attempts", strconv.Itoa(int(n.GetInstallAttempts())))
	if e := n.GetLastInstallError(); e != "" {
		f.Add("LastError", s.Warn(Clean(e)))
	}
	if r := n.GetLastReport(); r != nil {
		f.Add("LastReport", fmt.Sprintf("%s %d%%, %s ago", Clean(r.GetInstallationStatus()), r.GetInstallationProgress(),
			Age(r.GetReportedAt(), now)))
	}
	for _, c := range n.GetChecks() {
		f.Add("Check", s.check(c))
	}
	next := make([]string, 0, len(n.GetNextStates()))
	for _, to := range n.GetNextStates() {
		next = append(next, lowerState(to))
	}
	f.Add("MayBecome", strings.Join(next, ", "))
	return f.String()
}

// Checks lists the health checks of a node on its way in; nothing where there are none.
func (s Style) Checks(checks []*pb.NodeCheck) string {
	f := &Fields{}
	for _, c := range checks {
		f.Add("Check", s.check(c))
	}
	return f.String()
}

// check is one health check in words; those that did not pass stand out.
func (s Style) check(c *pb.NodeCheck) string {
	if c.GetMessage() == "" {
		return c.GetName() + " " + c.GetState()
	}
	return s.Warn(c.GetName() + " " + c.GetState() + ": " + Clean(c.GetMessage()))
}

// NodeHistory is the table of `ingot node history`.
func (s Style) NodeHistory(h *pb.GetNodeHistoryResponse) *Table {
	t := &Table{Header: []string{"TIME", "FROM", "TO", "BY", "USER", "OPERATION_ID", "COMMENT"}}
	for _, l := range h.GetData() {
		why := Clean(l.GetComment())
		if e := l.GetMetadata()["error"]; e != "" {
			why = strings.TrimSpace(why + " " + s.Warn(Clean(e)))
		}
		t.Add(Time(l.GetCreatedAt()), lowerState(l.GetFromState()), lowerState(l.GetToState()), l.GetTriggeredBy(),
			Clean(l.GetUserId()),
			l.GetMetadata()["operation_id"], why)
	}
	return t
}

// NodeGroups is the table of `ingot node group list`.
func (s Style) NodeGroups(groups []*pb.NodeGroup, now time.Time) *Table {
	t := &Table{Header: []string{"GROUP", "AUTO_PROMOTE", "NODES", "SET"}}
	for _, g := range groups {
		t.Add(g.GetGroup(), strconv.FormatBool(g.GetAutoPromote()), strconv.Itoa(int(g.GetNodes())),
			Age(g.GetUpdatedAt(), now))
	}
	return t
}
