package view

import (
	"fmt"
	"strconv"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// lowerState names a node state as it is typed.
func lowerState(n pb.NodeState) string { return strings.ToLower(NodeState(n)) }

// Nodes are the columns of `ingot node list`.
func (s Style) Nodes(n *pb.Node) (cells, wide []Cell) {
	return []Cell{
		{"MACHINE_ID", n.GetNodeId()}, {"STATE", lowerState(n.GetState())}, {"SINCE", Age(n.GetStateChangedAt(), s.Now)},
		{"ATTEMPTS", strconv.Itoa(int(n.GetInstallAttempts()))}, {"PLAN_ID", n.GetPlanId()}, {"GROUP", n.GetGroup()},
		{"LAST_ERROR", Clean(n.GetLastInstallError())},
	}, nil
}

// Node is the sheet of `ingot node get`.
func (s Style) Node(n *pb.Node) string {
	f := &Fields{}
	f.Add("Machine", n.GetNodeId())
	f.Add("State", lowerState(n.GetState()))
	f.Add("Since", Age(n.GetStateChangedAt(), s.Now))
	f.Add("Plan", n.GetPlanId())
	f.Add("Group", n.GetGroup())
	f.Add("Attempts", strconv.Itoa(int(n.GetInstallAttempts())))
	if e := n.GetLastInstallError(); e != "" {
		f.Add("LastError", s.Warn(Clean(e)))
	}
	if r := n.GetLastReport(); r != nil {
		f.Add("LastReport", fmt.Sprintf("%s %d%%, %s ago", Clean(r.GetInstallationStatus()), r.GetInstallationProgress(),
			Age(r.GetReportedAt(), s.Now)))
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

// NodeGroups are the columns of `ingot node group list`.
func (s Style) NodeGroups(g *pb.NodeGroup) (cells, wide []Cell) {
	return []Cell{
		{"GROUP", g.GetGroup()}, {"AUTO_PROMOTE", strconv.FormatBool(g.GetAutoPromote())},
		{"NODES", strconv.Itoa(int(g.GetNodes()))}, {"SET", Age(g.GetUpdatedAt(), s.Now)},
	}, nil
}
