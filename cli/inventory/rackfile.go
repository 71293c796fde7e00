package inventory

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/table"
	"github.com/ingot-metal/ingot/internal/dnsname"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// cell is one value of a file, and where it stands: line and column, from 1.
type cell struct {
	text      string
	line, col int
}

// rackRow is one machine of a file, by the names of fields. given is the machine itself where the file has it whole.
type rackRow struct {
	line   int
	fields map[string]cell
	given  *pb.Machine
	// device is NetBox's number of the device; empty where the file has none.
	device string
}

// problem is one thing that is wrong with a file.
type problem struct {
	line, col   int
	field, text string
}

// rackFile is a file of machines that is being read.
type rackFile struct {
	name     string
	rows     []rackRow
	problems []problem
	// numbered: the file has no table, and rows are numbers of machines.
	numbered bool
}

// at is the place of a field of a row; that of the row where the field is not in the file.
func (r rackRow) at(field string) cell {
	if c, ok := r.fields[field]; ok {
		return c
	}
	return cell{line: r.line, col: 1}
}

// mostProblems bounds the number of printed problems: fewer suffice to recognize a wrong column.
const mostProblems = 100

func (f *rackFile) fault(at cell, field, format string, args ...any) {
	f.problems = append(f.problems, problem{at.line, at.col, field, fmt.Sprintf(format, args...)})
}

// err names everything that is wrong, a line each, in the order of the file.
func (f *rackFile) err() error {
	if len(f.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(f.problems, func(a, b problem) int { return (a.line-b.line)*1000 + a.col - b.col })
	var lines []string
	for _, p := range f.problems[:min(len(f.problems), mostProblems)] {
		place := fmt.Sprintf("%s:%d:%d", f.name, p.line, p.col)
		if f.numbered {
			place = fmt.Sprintf("%s: machine %d", f.name, p.line)
		}
		lines = append(lines, fmt.Sprintf("%s: %s: %s", place, p.field, p.text))
	}
	if more := len(f.problems) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return command.Invalidf("%d things are wrong with the file; nothing was written\n%s", len(f.problems),
		strings.Join(lines, "\n"))
}

// fieldOf is the field that a header stands for; empty where it is left out. known is false for a header that may be a
// mistake.
func fieldOf(header string) (field string, known bool) {
	if field, known = table.FieldOf(header); known {
		return field, true
	}
	if name := table.Word(header); specFields().ByName(protoreflect.Name(name)) != nil {
		return name, true
	}
	return "", false
}

// fromNetBox reports whether a header is that of NetBox's table of devices, which may have any columns beside.
func fromNetBox(row []string) bool {
	return slices.Contains(row, "Name") && slices.Contains(row, "Status")
}

// readRack reads CSV, or the JSON of NetBox's API: a list of devices, or pages with "results".
func readRack(name string, raw []byte) (*rackFile, error) {
	f := &rackFile{name: name}
	text, err := table.Text(raw)
	if err != nil {
		return nil, command.Invalidf("%s: %w", name, err)
	}
	if isJSON(text) {
		return f, f.readJSON(text)
	}
	return f, f.readCSV(raw)
}

// isJSON reports whether a text begins as a list or an object does.
func isJSON(text string) bool {
	text = strings.TrimSpace(text)
	return text != "" && (text[0] == '[' || text[0] == '{')
}

func (f *rackFile) readCSV(raw []byte) error {
	t, err := table.Read(raw)
	if err != nil {
		return command.Invalidf("%s: %w", f.name, err)
	}
	fields := f.header(t.Header)
	for _, row := range t.Rows {
		out := rackRow{line: row[0].Line, fields: map[string]cell{}}
		for i, c := range row {
			at := cell{c.Text, c.Line, c.Col}
			switch {
			case c.Text == "":
			case i >= len(fields):
				f.fault(at, "column "+fmt.Sprint(i+1), "there are only %d headers", len(fields))
			case t.Header[i].Text == "":
				f.fault(at, "column "+fmt.Sprint(i+1), "it has no header")
			case fields[i] != "":
				out.fields[fields[i]] = at
			}
		}
		if len(out.fields) > 0 {
			f.rows = append(f.rows, out)
		}
	}
	return nil
}

// header returns the field of each column.
func (f *rackFile) header(row []table.Cell) []string {
	fields, texts := make([]string, len(row)), make([]string, len(row))
	for i, h := range row {
		texts[i] = h.Text
	}
	for i, h := range row {
		at := cell{h.Text, h.Line, h.Col}
		field, known := fieldOf(h.Text)
		switch {
		case h.Text == "": // as spreadsheets leave behind the last column
		case strings.Contains(strings.ToLower(h.Text), "password"):
			f.fault(at, h.Text, "a password does not belong into this file; give --bmc-username and --bmc-password-file")
		case !known && !fromNetBox(texts):
			f.fault(at, h.Text, "unknown column; see ingot rack import --help")
		case field != "" && slices.Contains(fields[:i], field):
			f.fault(at, h.Text, "another column is %s already", field)
		default:
			fields[i] = field
		}
	}
	if !slices.Contains(fields, "machine_id") {
		f.fault(cell{line: row[0].Line, col: 1}, "machine_id", "no column says it; NetBox calls it Name")
	}
	return fields
}

// readJSON takes NetBox's devices: a nested object stands for its slug, its name or its address.
func (f *rackFile) readJSON(text string) error {
	devices, err := table.NetBox(text)
	if err != nil {
		return command.Invalidf("%s: %w", f.name, err)
	}
	for i, device := range devices {
		row := rackRow{line: i + 1, fields: map[string]cell{}, device: table.PlainText("", device["id"])}
		for key, value := range device {
			field, _ := fieldOf(key)
			if text := table.PlainText(field, value); field != "" && text != "" {
				row.fields[field] = cell{text, i + 1, 1}
			}
		}
		f.rows = append(f.rows, row)
	}
	return nil
}

var notLabel = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// machine makes the machine of a row.
func (f *rackFile) machine(row rackRow) *pb.Machine {
	if row.given != nil {
		return row.given
	}
	tree := map[string]any{}
	for _, field := range sortedFields(row) {
		c := row.fields[field]
		if text, ok := f.value(field, c); ok {
			setCell(tree, field, text)
		}
	}
	m := &pb.Machine{}
	if err := command.FromTree(tree, m); err != nil {
		f.fault(cell{line: row.line, col: 1}, "machine", "%v", err)
	}
	if _, named := row.fields["machine_id"]; !named {
		f.fault(cell{line: row.line, col: 1}, "machine_id", "required")
	}
	return m
}

// value checks a value and returns it in the API's form.
func (f *rackFile) value(field string, c cell) (string, bool) {
	switch field {
	case "machine_id":
		id := strings.ToLower(strings.ReplaceAll(c.text, " ", "-"))
		if !dnsname.MachineID(id) {
			f.fault(c, field, "%q: %s", c.text, dnsname.MachineIDRule)
			return "", false
		}
		return id, true
	case "site":
		return strings.ReplaceAll(table.Word(c.text), "_", "-"), true
	case "mac_addresses":
		all, bad := hwid.MACs(c.text)
		if bad != "" {
			f.fault(c, field, "%q is no MAC address", bad)
			return "", false
		}
		return strings.Join(all, " "), true
	case "install_address":
		if _, err := netip.ParsePrefix(c.text); err != nil {
			f.fault(c, field, "%q is no address with its prefix length, such as 10.42.0.17/24", c.text)
			return "", false
		}
	case "bmc_endpoint":
		if strings.Contains(c.text, "://") {
			return c.text, true
		}
		address, _, _ := strings.Cut(c.text, "/") // NetBox writes addresses with the length of their prefix
		return address, true
	case "labels.role", "labels.tenant", "labels.asset-tag", "labels.position":
		return strings.Trim(notLabel.ReplaceAllString(c.text, "-"), "-._"), true
	}
	return c.text, true
}

func sortedFields(row rackRow) []string {
	var out []string
	for field := range row.fields {
		out = append(out, field)
	}
	slices.Sort(out)
	return out
}

// addInterfaces sets the machines' MAC addresses by those of NetBox's interfaces, but of those that are for management
// alone.
func (f *rackFile) addInterfaces(name string, raw []byte) error {
	in, err := readInterfaces(name, raw)
	if err != nil {
		return err
	}
	used := false
	for _, row := range f.rows {
		c, named := row.fields["machine_id"]
		macs, one := in.of(row.device, c.text)
		if !one {
			f.fault(c, "machine_id", "%s has interfaces of two devices called %s: NetBox's names are those of one site alone. "+
				"Export the interfaces of one site, or both files as JSON", name, c.text)
		}
		if !named || len(macs) == 0 {
			continue
		}
		used = true
		at := row.at("mac_addresses")
		all := append(strings.Fields(at.text), macs...)
		row.fields["mac_addresses"] = cell{strings.Join(all, " "), max(at.line, row.line), max(at.col, 1)}
	}
	if !used {
		return command.Invalidf("%s: no interface with a MAC address is of a machine of %s", name, f.name)
	}
	return nil
}

// interfaces are MAC addresses by the number and by the name of their device, the name in lower case.
type interfaces struct {
	byNumber, byName map[string][]string
	// several are names of more than one device.
	several map[string]bool
}

// of returns the addresses of a device, by its number where both files have numbers. one is false where its name is
// that of several devices.
func (in interfaces) of(number, name string) (macs []string, one bool) {
	if number != "" && len(in.byNumber) > 0 {
		return in.byNumber[number], true
	}
	name = strings.ToLower(name)
	return in.byName[name], !in.several[name]
}

// readInterfaces reads NetBox's table of interfaces. Two devices of one name show themselves by their numbers, or by an
// interface that is there twice.
func readInterfaces(name string, raw []byte) (interfaces, error) {
	out := interfaces{map[string][]string{}, map[string][]string{}, map[string]bool{}}
	rows, err := interfaceRows(name, raw)
	if err != nil {
		return out, err
	}
	numbers, seen := map[string]string{}, map[[2]string]bool{}
	for _, row := range rows {
		device := strings.ToLower(table.PlainText("machine_id", cmp.Or(row["device"], row["machine_id"])))
		nested, _ := row["device"].(map[string]any)
		number, own := table.PlainText("", nested["id"]), [2]string{device, table.PlainText("", row["name"])}
		if before, there := numbers[device]; there && before != number || number == "" && own[1] != "" && seen[own] {
			out.several[device] = true
		}
		numbers[device], seen[own] = number, true
		mac := cmp.Or(table.PlainText("", row["mac_address"]), table.PlainText("", row["primary_mac_address"]),
			table.PlainText("", row["primary_mac"]))
		management := row["mgmt_only"] == true || strings.EqualFold(table.PlainText("", cmp.Or(row["management_only"],
			row["mgmt_only"])), "true")
		// InfiniBand has longer ones, and nothing boots by them.
		long := len(strings.NewReplacer(":", "", "-", "", ".", "").Replace(mac)) > 12
		if device == "" || mac == "" || management || long {
			continue
		}
		addOnce(out.byName, device, mac)
		if number != "" {
			addOnce(out.byNumber, number, mac)
		}
	}
	return out, nil
}

func addOnce(by map[string][]string, key, mac string) {
	if !slices.Contains(by[key], mac) {
		by[key] = append(by[key], mac)
	}
}

func interfaceRows(name string, raw []byte) ([]map[string]any, error) {
	text, err := table.Text(raw)
	if err != nil {
		return nil, command.Invalidf("%s: %w", name, err)
	}
	if isJSON(text) {
		rows, err := table.NetBox(text)
		if err != nil {
			return nil, command.Invalidf("%s: %w", name, err)
		}
		return rows, nil
	}
	t, err := table.Read(raw)
	if err != nil {
		return nil, command.Invalidf("%s: %w", name, err)
	}
	var rows []map[string]any
	columns := make([]string, len(t.Header))
	for i, h := range t.Header {
		columns[i] = table.Word(h.Text)
	}
	if !slices.Contains(columns, "device") && !slices.Contains(columns, "machine_id") {
		return nil, command.Invalidf("%s: no column is called Device; this is no table of NetBox's interfaces", name)
	}
	for _, row := range t.Rows {
		tree := map[string]any{}
		for i, c := range row[:min(len(row), len(columns))] {
			tree[columns[i]] = c.Text
		}
		rows = append(rows, tree)
	}
	return rows, nil
}
