package config

import (
	"testing"

	"github.com/ingot-metal/ingot/internal/testkit/document"
)

func TestReferenceControllerConfig(t *testing.T) {
	document.Check(t, "controller-config.md", "Configuration of the controller",
		"The file of `ingot-controller run --config`; `ingot-controller config sample` prints it.\n\n```yaml\n"+
			string(Sample)+"```")
}
