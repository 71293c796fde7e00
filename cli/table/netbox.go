package table

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

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
	"id", "url", "display", "display_url", "status", "tenant_group", "site_group", "manufacturer", "type",
	"device_type", "u_height", "platform", "primary_ip", "primary_ip4", "primary_ip6", "ip_address",
	"ipv4_address", "ipv6_address", "face", "cluster", "virtual_chassis", "vc_position", "vc_priority",
	"config_template", "parent_device", "position_device_bay", "description", "comments", "contacts", "tags",
	"airflow", "latitude", "longitude", "owner", "custom_fields", "local_context_data", "created", "last_updated",
	"rack_face", "device_bay_position",
}

var notWord = regexp.MustCompile(`[^a-z0-9]+`)

// Word returns a header in lower case with _ between its words.
func Word(header string) string {
	return strings.Trim(notWord.ReplaceAllString(strings.ToLower(header), "_"), "_")
}

// FieldOf returns the field of a machine that a header stands for; empty where it is left out. known is false for a
// header that may be a mistake.
func FieldOf(header string) (field string, known bool) {
	if label, ok := strings.CutPrefix(header, "labels."); ok {
		return "labels." + label, label != ""
	}
	name := Word(header)
	if f, ok := columns[name]; ok {
		return f, true
	}
	return "", slices.Contains(ignored, name)
}

// NetBox reads what NetBox's API answers: a list, or pages with "results" one after the other, each object once. Pages
// that are not all of them are refused: what they lack would look like what does not exist.
func NetBox(text string) ([]map[string]any, error) {
	var out []map[string]any
	seen := map[any]bool{}
	d := json.NewDecoder(strings.NewReader(text))
	whole := 0
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		var page struct {
			Count          *int
			Next, Previous any
			Results        []map[string]any
		}
		into := any(&page)
		if raw[0] == '[' {
			into = &page.Results
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return nil, err
		}
		for _, one := range page.Results {
			id, numbered := one["id"].(float64)
			if !numbered || !seen[id] {
				seen[id] = true
				out = append(out, one)
			}
		}
		switch {
		case page.Count != nil:
			whole = max(whole, *page.Count)
		case page.Next != nil || page.Previous != nil:
			whole = len(out) + 1
		}
	}
	if whole > len(out) {
		return nil, fmt.Errorf(
			"%d of %d entries: this is one page of several; ask NetBox for ?limit=0, or put all pages into "+
				"the file, one after the other",
			len(out),
			whole,
		)
	}
	return out, nil
}

// PlainText returns a value of NetBox as one text: a nested object stands for its slug, its name or its address.
func PlainText(field string, value any) string {
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
			all = append(all, PlainText(field, one))
		}
		return strings.Join(all, " ")
	}
	return ""
}
