package operation

import (
	"maps"
	"slices"

	"github.com/ingot-metal/ingot/internal/failure"
)

// BootServer returns the address of the boot server of the segment on which a machine was seen last, or of the site's
// first segment. addresses are by segment, as the site's agent has reported them; without any the agent is awaited.
func BootServer(addresses map[string]string, segment string) (string, error) {
	if a := addresses[segment]; a != "" {
		return a, nil
	}
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		return addresses[name], nil
	}
	return "", failure.Unavailable("SITE_AGENT_SILENT", "the site's agent has not said where its boot server is")
}
