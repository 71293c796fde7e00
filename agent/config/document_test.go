package config_test

import (
	"testing"

	"github.com/ingot-metal/ingot/agent/config"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

func TestReferenceAgentConfig(t *testing.T) {
	document.Check(t, "agent-config.md", "Configuration of the agent",
		"The keys of `/etc/ingot/agent.yaml`, the file of `ingot-agent run --config`.\n\n"+
			document.ConfigKeys(t, config.Default()))
}
