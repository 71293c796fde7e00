// Package hardware compares the inventories of a machine: parts that came, went or changed. It is pure.
//
// An inventory has holes, and a hole is no hardware that has gone: parts that either side could not read are not
// compared.
package hardware

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Kinds of changes.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Change is one difference between two inventories.
type Change struct {
	// Part is a key of the document, such as disks; Item identifies one of a list by its distinguishing value.
	Part, Item string
	Kind       string
	// Field is the changed field, Before and After its values; all are empty for parts that came or went.
	Field, Before, After string
}

// object is an object of the document.
type object = map[string]any

// list is a part that is a list, and how its items are distinguished and shown.
type list struct {
	part string
	// within is the object that has the list; empty: the document.
	within string
	keys   []string // the first that is set, and further ones if all are needed
	all    bool
	// ignored are fields that change by themselves, or with the system that runs.
	ignored []string
	// title has the fields that describe an item beside its key.
	title []string
}

var lists = []list{
	{part: "dimms", within: "memory", keys: []string{"locator", "bank"}, all: true,
		title: []string{"size_bytes", "part_number", "serial"}},
	{
		part:    "disks",
		keys:    []string{"serial", "wwn", "name"},
		ignored: []string{"name"},
		title:   []string{"model", "size_bytes"},
	},
	{
		part:    "arrays",
		keys:    []string{"name"},
		ignored: []string{"members", "rebuilding"},
		title:   []string{"level", "disks"},
	},
	{part: "nics", keys: []string{"mac", "pci", "name"},
		ignored: []string{"name", "link_up", "speed_mbps", "driver", "neighbours"}, title: []string{"name", "pci"}},
	{part: "pci", keys: []string{"address"}, ignored: []string{"driver"}, title: []string{"class", "vendor", "device"}},
	{part: "accelerators", keys: []string{"address"}, ignored: []string{"driver", "driver_version", "link"},
		title: []string{"model", "vendor", "device"}},
	{part: "firmware", keys: []string{"component"}, title: []string{"version"}},
}

// single are parts that a machine has one of, with the fields of each that are not compared.
var single = map[string][]string{
	"system": nil, "cpu": nil, "memory": {"usable_bytes", "dimms"}, "bmc": nil, "tpm": nil, "os": {"boot_id"},
}

// holes names the parts that a missing one is about, where it is called otherwise.
var holes = map[string]string{
	"system serials": "system", "cpu topology": "cpu", "kernel": "os", "machine-id": "os", "boot id": "os", "image": "os",
}

// Differences compares two inventory documents, the earlier one first.
func Differences(before, after []byte) ([]Change, error) {
	a, err := decode(before)
	if err != nil {
		return nil, err
	}
	b, err := decode(after)
	if err != nil {
		return nil, err
	}
	unknown := missing(a)
	for part := range missing(b) {
		unknown[part] = true
	}
	var out []Change
	for _, l := range lists {
		if !unknown[l.part] {
			out = append(out, l.compare(a, b, unknown)...)
		}
	}
	for part, ignored := range single {
		if !unknown[part] {
			out = append(out, fields(part, "", part1(a, part), part1(b, part), ignored)...)
		}
	}
	slices.SortStableFunc(out, func(x, y Change) int {
		return cmp.Or(cmp.Compare(x.Part, y.Part), cmp.Compare(x.Item, y.Item), cmp.Compare(x.Field, y.Field))
	})
	return out, nil
}

func decode(document []byte) (object, error) {
	var o object
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return nil, fmt.Errorf("read inventory: %w", err)
	}
	return o, nil
}

// missing returns the parts that the document marks as missing; "neighbours of eth0" is one.
func missing(o object) map[string]bool {
	out := map[string]bool{}
	all, _ := o["missing"].([]any)
	for _, m := range all {
		part, _, _ := strings.Cut(text(m), ":")
		out[cmp.Or(holes[part], part)] = true
	}
	return out
}

// compare finds what came and went, and compares what stayed. A list that either side does not have is not compared.
func (l list) compare(a, b object, unknown map[string]bool) []Change {
	if l.within != "" {
		a, b = part1(a, l.within), part1(b, l.within)
	}
	old, known := l.items(a)
	now, knownNow := l.items(b)
	if !known || !knownNow {
		return nil
	}
	var out []Change
	for key, was := range old {
		is, stayed := now[key]
		if !stayed {
			out = append(out, Change{Part: l.part, Item: l.titled(key, was), Kind: Removed})
			continue
		}
		out = append(out, fields(l.part, key, was, is, l.ignored)...)
		if l.part == "nics" && !unknown["neighbours"] && !unknown["neighbours of "+text(is["name"])] &&
			!unknown["neighbours of "+text(was["name"])] {
			out = append(out, plugged(key, was, is)...)
		}
	}
	for key, is := range now {
		if _, stayed := old[key]; !stayed {
			out = append(out, Change{Part: l.part, Item: l.titled(key, is), Kind: Added})
		}
	}
	return out
}

// items are those of the list by their key. Items with the same key are counted.
func (l list) items(o object) (map[string]object, bool) {
	raw, ok := o[l.part].([]any)
	if !ok {
		return nil, false
	}
	out := map[string]object{}
	for _, r := range raw {
		item, _ := r.(object)
		key := l.key(item)
		for n := 2; out[key] != nil; n++ {
			key = fmt.Sprintf("%s #%d", l.key(item), n)
		}
		out[key] = item
	}
	return out, true
}

func (l list) key(item object) string {
	var found []string
	for _, k := range l.keys {
		if v := text(item[k]); v != "" {
			found = append(found, v)
		}
	}
	switch {
	case len(found) == 0:
		return "without a name"
	case l.all:
		return strings.Join(found, " ")
	}
	return found[0]
}

func (l list) titled(key string, item object) string {
	var more []string
	for _, k := range l.title {
		if v := text(item[k]); v != "" && v != key {
			more = append(more, v)
		}
	}
	if len(more) == 0 {
		return key
	}
	return key + " (" + strings.Join(more, ", ") + ")"
}

// fields compares what both sides know: a value that one of them has not is a hole.
func fields(part, item string, a, b object, ignored []string) []Change {
	var out []Change
	for name, was := range a {
		is, before, after := b[name], text(was), text(b[name])
		if is == nil || before == "" || after == "" || before == after || slices.Contains(ignored, name) {
			continue
		}
		out = append(out, Change{Part: part, Item: item, Kind: Changed, Field: name, Before: before, After: after})
	}
	return out
}

// plugged compares what a network interface is plugged into; nothing heard is an unplugged cable.
func plugged(key string, a, b object) []Change {
	before, after := ports(a), ports(b)
	if before == after {
		return nil
	}
	return []Change{{Part: "nics", Item: key, Kind: Changed, Field: "neighbours", Before: before, After: after}}
}

func ports(nic object) string {
	all, _ := nic["neighbours"].([]any)
	out := make([]string, 0, len(all))
	for _, n := range all {
		o, _ := n.(object)
		out = append(out, cmp.Or(text(o["system"]), text(o["chassis"]))+" "+text(o["port"]))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func part1(o object, part string) object {
	inner, _ := o[part].(object)
	return inner
}

// text is a value as a person reads it; lists and objects have none.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		if v {
			return "yes"
		}
		return "no"
	}
	return ""
}
