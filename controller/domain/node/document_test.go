package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

func TestReferenceNodeStates(t *testing.T) {
	b := strings.Builder{}
	b.WriteString(
		"The table of `controller/domain/node/table.go`. [Nodes](../explanation/nodes.md) says what each state " +
			"means.\nA change that is not in the table is `NODE_TRANSITION_ILLEGAL`. A guard that does not pass is " +
			"`NODE_GUARD_FAILED`.\n\n",
	)
	var rows [][]string
	for _, from := range node.States() {
		for _, row := range node.From(from) {
			by := make([]string, 0, len(row.Triggers))
			for _, trigger := range row.Triggers {
				by = append(by, string(trigger))
			}
			work := ""
			if row.Work {
				work = "yes"
			}
			rows = append(rows, []string{node.Name(from), node.Name(row.To), strings.Join(by, ", "), string(row.Guard), work})
		}
	}
	b.WriteString(document.Table([]string{"from", "to", "caused by", "guard", "starts work"}, rows))
	b.WriteString("\n## Who causes a change\n\n")
	b.WriteString(
		document.Table([]string{"trigger", "meaning"}, document.Constants(t, "controller/domain/node", "Trigger")),
	)
	b.WriteString("\n## Guards\n\n")
	guards := document.Constants(t, "controller/domain/node", "Guard")
	b.WriteString(document.Table([]string{"guard", "meaning"}, guards))
	for _, row := range node.Table() {
		known := func(g []string) bool { return g[0] == fmt.Sprintf("`%s`", row.Guard) }
		if row.Guard != "" && !slices.ContainsFunc(guards, known) {
			t.Errorf("guard %s has no comment", row.Guard)
		}
	}
	document.Check(t, "node-states.md", "Node states", b.String())
}
