package cmdline

import (
	"testing"

	"github.com/ingot-metal/ingot/internal/testkit/document"
)

func TestReferenceCommands(t *testing.T) {
	document.Check(t, "ingot-agent.md", "ingot-agent", document.Commands(app{}.root()))
}
