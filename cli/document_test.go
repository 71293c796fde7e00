package cli

import (
	"testing"

	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

func TestReferenceCommands(t *testing.T) {
	document.Check(t, "ingot.md", "ingot", document.Commands(newRoot(&command.App{})))
}
