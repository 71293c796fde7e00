package inventory

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// cell is one value of a file, and where it stands: line and column, from 1.
type cell struct {
	text      string
	line, col int
}

// rackRow is one machine of a file, by the names of fields.
type rackRow struct {
	line   int
	fields map[string]cell
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
}

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
	for _, p := range f.problems {
		lines = append(lines, fmt.Sprintf("%s:%d:%d: %s: %s", f.name, p.line, p.col, p.field, p.text))
	}
	return command.Invalidf("%d things are wrong with the file; nothing was written\n%s", len(lines),
		strings.Join(lines, "\n"))
}

// columns are the fields of a machine by the names that files have for them, in lower case and with _ between words.
// Those of NetBox are the headers of its table of devices and the fields of its devices in JSON
// (netbox/dcim/tables/devices.py and netbox/dcim/api/serializers_/devices.py).
var columns = map[string]string{
	"machine_id": "machine_id", "machine": "machine_id", "name": "machine_id", "hostname": "machine_id",
	"rack": "rack", "position": "labels.position", "position_u": "labels.position", "unit": "labels.position",
	"mac": "mac_addresses", "macs": "mac_addresses", "mac_address": "mac_addresses", "mac_addresses": "mac_addresses",
	"bmc": "bmc_endpoint", "bmc_address": "bmc_endpoint", "bmc_endpoint": "bmc_endpoint", "oob_ip": "bmc_endpoint",
	"bmc_credentials": "bmc_credentials_ref", "bmc_credentials_ref": "bmc_credentials_ref",
	"serial": "serial", "serial_number": "serial", "asset_tag": "labels.asset-tag", "site": "site",
	"location": "location", "region": "region", "group": "group", "external_id": "external_id",
	"install_path": "install_path", "install_address": "install_address",
	"install_disk": "install_disk", "install_mirror": "install_mirror",
	"default_image_ref": "default_image_ref", "image": "default_image_ref",
	"role": "labels.role", "device_role": "labels.role", "tenant": "labels.tenant", "provider": "provider",
}

// ignored are NetBox's columns that say nothing of a machine that is of use here.
var ignored = []string{
	"id",
	"url",
	"display",
	"display_url",
	"status",
	"tenant_group",
	"site_group",
	"manufacturer",
	"type",
	"device_type",
	"u_height",
	"platform",
	"primary_ip",
	"primary_ip4",
	"primary_ip6",
	"ip_address",
	"ipv4_address",
	"ipv6_address",
	"face",
	"cluster",
	"virtual_chassis",
	"vc_position",
	"vc_priority",
	"config_template",
	"parent_device",
	"position_device_bay",
	"description",
	"comments",
	"contacts",
	"tags",
	"airflow",
	"latitude",
	"longitude",
	"owner",
	"custom_fields",
	"local_context_data",
	"created",
	"last_updated",
	"rack_face",
	"device_bay_position",
}

var notWord = regexp.MustCompile(`[^a-z0-9]+`)

// fieldOf is the field that a header stands for; empty where it is to be left out. known is false for a header that may
// be a mistake.
func fieldOf(header string) (field string, known bool) {
	if label, ok := strings.CutPrefix(header, "labels."); ok {
		return "labels." + label, label != ""
	}
	name := strings.Trim(notWord.ReplaceAllString(strings.ToLower(header), "_"), "_")
	if f, ok := columns[name]; ok {
		return f, true
	}
	return "", slices.Contains(ignored, name)
}

// fromNetBox reports whether a header is that of NetBox's table of devices, which may have any columns beside.
func fromNetBox(row []string) bool {
	return slices.Contains(row, "Name") && slices.Contains(row, "Status")
}

// readRack reads CSV, or the JSON of NetBox's API: a list of devices, or a page with "results".
func readRack(name string, raw []byte) (*rackFile, error) {
	f := &rackFile{name: name}
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	if text := bytes.TrimSpace(raw); len(text) > 0 && (text[0] == '[' || text[0] == '{') {
		return f, f.readJSON(text)
	}
	return f, f.readCSV(raw)
}

func (f *rackFile) readCSV(raw []byte) error {
	r := csv.NewReader(bytes.NewReader(raw))
	r.FieldsPerRecord, r.TrimLeadingSpace = -1, true
	if header, _, _ := bytes.Cut(raw, []byte("\n")); bytes.Count(header, []byte(";")) > bytes.Count(header, []byte(",")) {
		r.Comma = ';'
	}
	var fields []string
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return command.Invalidf("%s: %w", f.name, err)
		}
		if fields == nil {
			fields = f.header(r, row)
			continue
		}
		out := rackRow{fields: map[string]cell{}}
		out.line, _ = r.FieldPos(0)
		for i, text := range row {
			line, col := r.FieldPos(i)
			c := cell{strings.TrimSpace(text), line, col}
			switch {
			case i >= len(fields) && c.text != "":
				f.fault(c, "column "+fmt.Sprint(i+1), "there are only %d headers", len(fields))
			case i < len(fields) && fields[i] != "" && c.text != "":
				out.fields[fields[i]] = c
			}
		}
		if len(out.fields) > 0 {
			f.rows = append(f.rows, out)
		}
	}
	if fields == nil {
		return command.Invalidf("%s: the file is empty", f.name)
	}
	return nil
}

// header gives the field of each column.
func (f *rackFile) header(r *csv.Reader, row []string) []string {
	fields := make([]string, len(row))
	for i, header := range row {
		line, col := r.FieldPos(i)
		at := cell{header, line, col}
		field, known := fieldOf(strings.TrimSpace(header))
		switch {
		case strings.Contains(strings.ToLower(header), "password"):
			f.fault(at, header, "a password does not belong into this file; give --bmc-username and --bmc-password-file")
		case !known && !fromNetBox(row):
			f.fault(at, header, "unknown column; see ingot rack import --help")
		case field != "" && slices.Contains(fields[:i], field):
			f.fault(at, header, "another column is %s already", field)
		default:
			fields[i] = field
		}
	}
	if !slices.Contains(fields, "machine_id") {
		f.fault(cell{line: 1, col: 1}, "machine_id", "no column says it; NetBox calls it Name")
	}
	return fields
}

// readJSON takes NetBox's devices: a nested object stands for its slug, its name or its address.
func (f *rackFile) readJSON(raw []byte) error {
	var page struct {
		Results []map[string]any `json:"results"`
		Next    any              `json:"next"`
	}
	if raw[0] == '[' {
		if err := json.Unmarshal(raw, &page.Results); err != nil {
			return command.Invalidf("%s: %w", f.name, err)
		}
	} else if err := json.Unmarshal(raw, &page); err != nil {
		return command.Invalidf("%s: %w", f.name, err)
	}
	if page.Next != nil {
		return command.Invalidf("%s: this is one page of several; ask NetBox for ?limit=0", f.name)
	}
	for i, device := range page.Results {
		row := rackRow{line: i + 1, fields: map[string]cell{}}
		for key, value := range device {
			field, _ := fieldOf(key)
			if text := plainText(field, value); field != "" && text != "" {
				row.fields[field] = cell{text, i + 1, 1}
			}
		}
		f.rows = append(f.rows, row)
	}
	return nil
}

func plainText(field string, value any) string {
	switch v := value.(type) {
	case string:
		return strings.TrimSpace(v)
	case float64:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
	case map[string]any:
		keys := []string{"slug", "name", "address", "mac_address", "value", "display"}
		if field == "rack" || field == "location" {
			keys = []string{"name", "display"}
		}
		for _, key := range keys {
			if text, ok := v[key].(string); ok && text != "" {
				return text
			}
		}
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, plainText(field, one))
		}
		return strings.Join(all, " ")
	}
	return ""
}

var notLabel = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

var machineIDForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,62}$`)

// machine makes the machine of a row.
func (f *rackFile) machine(row rackRow) *pb.Machine {
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

// value checks a value and gives it as the API takes it.
func (f *rackFile) value(field string, c cell) (string, bool) {
	switch field {
	case "machine_id":
		id := strings.ToLower(strings.ReplaceAll(c.text, " ", "-"))
		if !machineIDForm.MatchString(id) {
			f.fault(c, field, "%q: 1 to 63 characters of a-z, 0-9, . and -, the first a letter or digit", c.text)
			return "", false
		}
		return id, true
	case "site":
		return strings.Trim(notWord.ReplaceAllString(strings.ToLower(c.text), "-"), "-"), true
	case "mac_addresses":
		var out []string
		for _, mac := range strings.FieldsFunc(c.text, func(r rune) bool { return strings.ContainsRune(" ;,|", r) }) {
			hw, err := net.ParseMAC(mac)
			if err != nil || len(hw) != 6 {
				f.fault(c, field, "%q is no MAC address", mac)
				return "", false
			}
			out = append(out, hw.String())
		}
		return strings.Join(out, " "), true
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

// addInterfaces gives machines the MAC addresses of NetBox's interfaces, but of those that are for management alone.
func (f *rackFile) addInterfaces(name string, raw []byte) error {
	in, err := readInterfaces(name, raw)
	if err != nil {
		return err
	}
	for _, row := range f.rows {
		c, named := row.fields["machine_id"]
		macs := in[strings.ToLower(c.text)]
		if !named || len(macs) == 0 {
			continue
		}
		at := row.fields["mac_addresses"]
		all := append(strings.Fields(at.text), macs...)
		row.fields["mac_addresses"] = cell{strings.Join(all, " "), max(at.line, row.line), max(at.col, 1)}
	}
	return nil
}

// readInterfaces gives MAC addresses by the name of their device in lower case.
func readInterfaces(name string, raw []byte) (map[string][]string, error) {
	var rows []map[string]any
	text := bytes.TrimSpace(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")))
	switch {
	case len(text) > 0 && text[0] == '[':
		if err := json.Unmarshal(text, &rows); err != nil {
			return nil, command.Invalidf("%s: %w", name, err)
		}
	case len(text) > 0 && text[0] == '{':
		var page struct {
			Results []map[string]any `json:"results"`
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return nil, command.Invalidf("%s: %w", name, err)
		}
		rows = page.Results
	default:
		all, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
		if err != nil {
			return nil, command.Invalidf("%s: %w", name, err)
		}
		for _, row := range all[min(1, len(all)):] {
			tree := map[string]any{}
			for i, value := range row {
				tree[strings.Trim(notWord.ReplaceAllString(strings.ToLower(all[0][i]), "_"), "_")] = value
			}
			rows = append(rows, tree)
		}
	}
	out := map[string][]string{}
	for _, row := range rows {
		device := strings.ToLower(plainText("machine_id", cmp.Or(row["device"], row["machine_id"])))
		mac := cmp.Or(plainText("", row["mac_address"]), plainText("", row["primary_mac_address"]),
			plainText("", row["primary_mac"]))
		management := row["mgmt_only"] == true || strings.EqualFold(plainText("", cmp.Or(row["management_only"],
			row["mgmt_only"])), "true")
		if device != "" && mac != "" && !management && !slices.Contains(out[device], mac) {
			out[device] = append(out[device], mac)
		}
	}
	return out, nil
}
