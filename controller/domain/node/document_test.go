package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

func TestReferenceNodeStates(t *testing.T) {
	var b strings.Builder
	b.WriteString(
		"The states of `NodeState` in `api/baremetal/v1/machine.proto`. [Nodes](../explanation/nodes.md) explains " +
			"how work moves them.\n\n",
	)
	b.WriteString(document.Table([]string{"state", "meaning", "way in"}, meanings(t)))
	b.WriteString("\n## Changes\n\nThe table of `controller/domain/node/table.go`. A change that is not in it is " +
		"`NODE_TRANSITION_ILLEGAL`. A guard that\ndoes not pass is `NODE_GUARD_FAILED`.\n\n")
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

// meanings reads the comments of the states.
func meanings(t *testing.T) (rows [][]string) {
	t.Helper()
	proto, err := os.ReadFile(filepath.Join(document.Root(t), "api/baremetal/v1/machine.proto"))
	if err != nil {
		t.Fatal(err)
	}
	commented := regexp.MustCompile(`((?:  // .*\n)+)  NODE_STATE_([A-Z_]+) = `)
	for _, m := range commented.FindAllStringSubmatch(string(proto), -1) {
		if m[2] == "UNSPECIFIED" {
			continue
		}
		text := strings.Join(strings.Fields(strings.ReplaceAll(m[1], "//", "")), " ")
		meaning, way, _ := strings.Cut(text, " Way in: ")
		rows = append(rows, []string{"`" + strings.ToLower(m[2]) + "`", meaning, way})
	}
	if len(rows) != len(node.States()) {
		t.Errorf("%d of %d states have a comment", len(rows), len(node.States()))
	}
	return rows
}
