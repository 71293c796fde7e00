package cmdline

import (
	"testing"

	"github.com/ingot-metal/ingot/internal/testkit/document"
)

func TestReferenceCommands(t *testing.T) {
	document.Check(t, "ingot-controller.md", "ingot-controller", document.Commands(root("")))
}
