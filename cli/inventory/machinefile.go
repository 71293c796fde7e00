package inventory

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/table"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// readMachines reads machines from CSV (by the file's ending) or from YAML or JSON: one machine, a list, or
// what `ingot list -o yaml` prints. Whatever only the server may set is left out.
func (a commands) readMachines(path string) (*rackFile, error) {
	raw, err := a.app.ReadInput(path)
	if err != nil {
		return nil, err
	}
	f := &rackFile{name: path, numbered: true}
	if slices.Contains([]string{".csv", ".tsv", ".txt"}, strings.ToLower(filepath.Ext(path))) {
		f.numbered = false
		if err := f.readCSV(raw); err != nil {
			return nil, err
		}
	} else if err := f.readYAML(raw); err != nil {
		return nil, command.Invalidf("%s: %w", path, err)
	}
	if len(f.rows) == 0 && len(f.problems) == 0 {
		return nil, command.Invalidf("%s has no machines", path)
	}
	return f, nil
}

func (f *rackFile) readYAML(raw []byte) error {
	text, err := table.Text(raw)
	if err != nil {
		return err
	}
	all, err := machinesFromYAML([]byte(text))
	if err != nil {
		return err
	}
	for i, m := range all {
		row := rackRow{line: i + 1, given: m}
		if m.GetMachineId() == "" {
			f.fault(cell{line: row.line, col: 1}, "machine_id", "required; without one a second import would register it again")
		}
		f.rows = append(f.rows, row)
	}
	return nil
}

func machinesFromYAML(raw []byte) ([]*pb.Machine, error) {
	tree, err := command.Document(raw)
	if err != nil {
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

// setCell puts the text of a column where it belongs. Several rules of disks in one cell are separated by semicolons or
// line breaks, since a rule may hold spaces and commas. Other lists may be separated by spaces, too.
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
		inner(tree, "spec")[column] = hwid.Listed(value)
	case isList(column):
		inner(tree, "spec")[column] = strings.FieldsFunc(value, func(r rune) bool { return r == ';' || r == '\n' })
	default:
		inner(tree, "spec")[column] = value
	}
}

func isList(column string) bool {
	field := specFields().ByName(protoreflect.Name(column))
	return field != nil && field.IsList()
}

func inner(tree map[string]any, key string) map[string]any {
	m, ok := tree[key].(map[string]any)
	if !ok {
		m = map[string]any{}
		tree[key] = m
	}
	return m
}
