package query

import (
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/validate"
)

// maxColumns bounds the columns of a view.
const maxColumns = 32

// Columns are what a view can show of a machine, beside labels.KEY.
func Columns() []string {
	return []string{
		"machine_id", "effective_state", "phase", "node_state", "attention_reason", "conditions", "active_operation_id",
		"site", "region", "rack", "group", "location", "provider", "cluster", "serial", "mac_addresses", "image",
		"power_state", "last_heartbeat_at", "created_at", "updated_at", "labels",
	}
}

// ParseColumns returns the columns of a view with their own names.
func ParseColumns(path string, names []string) ([]string, error) {
	if len(names) > maxColumns {
		return nil, validate.Fault(path, "at most %d columns", maxColumns)
	}
	var out []string
	for _, name := range names {
		key, isKey := Machines.Key(name)
		switch {
		case isKey && (strings.HasPrefix(key, "labels.") || slices.Contains(Columns(), key)):
			name = key
		case !slices.Contains(Columns(), name):
			return nil, validate.Fault(path, "%q is none of %s, labels.KEY", name, strings.Join(Columns(), ", "))
		}
		if slices.Contains(out, name) {
			return nil, validate.Fault(path, "%q is there twice", name)
		}
		out = append(out, name)
	}
	return out, nil
}
