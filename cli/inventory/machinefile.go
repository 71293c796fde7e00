package inventory

import (
	"encoding/csv"
	"fmt"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// readMachines reads machines from CSV (by the file's ending) or from YAML or JSON: one machine, a list, or
// what `ingot list -o yaml` prints. Whatever only the server may set is left out.
func (a commands) readMachines(path string) ([]*pb.Machine, error) {
	raw, err := a.ReadInput(path)
	if err != nil {
		return nil, err
	}
	var out []*pb.Machine
	if strings.EqualFold(filepath.Ext(path), ".csv") {
		out, err = machinesFromCSV(string(raw))
	} else {
		out, err = machinesFromYAML(raw)
	}
	if err != nil {
		return nil, command.Invalidf("%s: %w", path, err)
	}
	for i, m := range out {
		if m.GetMachineId() == "" {
			return nil, command.Invalidf(
				"%s: machine %d has no machine_id; without one a second import would register it again",
				path,
				i+1,
			)
		}
	}
	return out, nil
}

func machinesFromYAML(raw []byte) ([]*pb.Machine, error) {
	var tree any
	if err := yaml.Unmarshal(raw, &tree); err != nil {
		return nil, err
	}
	var out []*pb.Machine
	for i, item := range machineTrees(tree) {
		if fields, ok := item.(map[string]any); ok {
			for _, k := range []string{"status", "created_at", "updated_at", "deleted_at", "version"} {
				delete(fields, k)
			}
		}
		m := &pb.Machine{}
		if err := command.FromTree(item, m); err != nil {
			return nil, fmt.Errorf("machine %d: %w", i+1, err)
		}
		out = append(out, m)
	}
	return out, nil
}

func machineTrees(tree any) []any {
	switch t := tree.(type) {
	case nil:
		return nil
	case []any:
		return t
	case map[string]any:
		if list, ok := t["machines"].([]any); ok {
			return list
		}
	}
	return []any{tree}
}

// machinesFromCSV takes a header of machine_id, fields of MachineSpec, and labels.<key>. Several MAC addresses
// in one cell are separated by semicolons or spaces, several rules of protected disks by semicolons.
func machinesFromCSV(text string) ([]*pb.Machine, error) {
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return nil, err
	}
	var out []*pb.Machine
	for i, row := range rows {
		if i == 0 {
			continue
		}
		tree := map[string]any{}
		for c, value := range row {
			setCell(tree, strings.TrimSpace(rows[0][c]), strings.TrimSpace(value))
		}
		m := &pb.Machine{}
		if err := command.FromTree(tree, m); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		out = append(out, m)
	}
	return out, nil
}

func setCell(tree map[string]any, column, value string) {
	if value == "" {
		return
	}
	label, isLabel := strings.CutPrefix(column, "labels.")
	switch {
	case column == "machine_id":
		tree[column] = value
	case isLabel:
		inner(tree, "labels")[label] = value
	case column == "mac_addresses":
		inner(tree, "spec")[column] = strings.FieldsFunc(value, func(r rune) bool { return r == ';' || r == ' ' })
	case column == "protected_disks": // a rule may hold spaces and commas
		inner(tree, "spec")[column] = strings.FieldsFunc(value, func(r rune) bool { return r == ';' })
	default:
		inner(tree, "spec")[column] = value
	}
}

func inner(tree map[string]any, key string) map[string]any {
	m, ok := tree[key].(map[string]any)
	if !ok {
		m = map[string]any{}
		tree[key] = m
	}
	return m
}
