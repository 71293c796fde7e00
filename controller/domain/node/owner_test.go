package node_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/node"
)

// Every state that stands for work, and no other, has a target for a node whose work was lost. The table lets the
// controller move it there by itself, and there it needs no owner.
func TestEveryStateOfWorkHasAPlaceWithoutAnOwner(t *testing.T) {
	n := 0
	for _, s := range node.States() {
		to, ok := node.Ownerless(s)
		if ok != node.InProgress(s) {
			t.Errorf("%s: %t", node.Name(s), ok)
		}
		if !ok {
			continue
		}
		n++
		if _, found := node.Find(s, to, node.System); !found || node.InProgress(to) {
			t.Errorf("%s → %s", node.Name(s), node.Name(to))
		}
	}
	if n != 7 {
		t.Errorf("%d states of work", n)
	}
}
