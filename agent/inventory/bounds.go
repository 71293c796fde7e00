package inventory

import (
	"cmp"
	"encoding/json"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/ingot-metal/ingot/agent/inventory/lldp"
	"github.com/ingot-metal/ingot/internal/safetext"
)

const (
	// MostBytes bounds a document. A controller drops documents over one mebibyte.
	MostBytes = 900 << 10
	// mostText bounds a text, mostItems a list.
	mostText, mostItems = 256, 2048
)

// limited reads a file of which nothing but the size can be trusted, and not even that.
func (c collector) limited(rel string, most int64) ([]byte, error) {
	f, err := os.Open(c.path(rel))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written to it
	return io.ReadAll(io.LimitReader(f, most))
}

// bounded cuts what firmware, disks and neighbours may have made too large, and names what it cut. It changes no other
// document that shares its lists.
func (d Document) bounded() Document {
	tidy(reflect.ValueOf(&d).Elem())
	cut(&d, "pci", &d.PCI)
	cut(&d, "dimms", &d.Memory.DIMMs)
	cut(&d, "disks", &d.Disks)
	cut(&d, "arrays", &d.Arrays)
	cut(&d, "nics", &d.NICs)
	cut(&d, "firmware", &d.Firmware)
	cut(&d, "accelerators", &d.Accelerators)
	for range 8 {
		if encoded(d) <= MostBytes {
			break
		}
		d.dropLargest()
	}
	return d.Normal()
}

// dropLargest leaves out the list that takes the most room: a list that a device has filled must not cost the other
// parts.
func (d *Document) dropLargest() {
	type part struct {
		name string
		size int
		drop func()
	}
	var heard [][]lldp.Neighbour
	for _, n := range d.NICs {
		heard = append(heard, n.Neighbours)
	}
	parts := []part{
		{neighbours, encoded(heard), func() {
			d.NICs = slices.Clone(d.NICs)
			for i := range d.NICs {
				d.NICs[i].Neighbours = nil
			}
		}},
		{"dimms", encoded(d.Memory.DIMMs), func() { d.Memory.DIMMs = nil }},
		{"disks", encoded(d.Disks), func() { d.Disks = nil }},
		{"arrays", encoded(d.Arrays), func() { d.Arrays = nil }},
		{"nics", encoded(d.NICs) - encoded(heard), func() { d.NICs = nil }},
		{"pci", encoded(d.PCI), func() { d.PCI = nil }},
		{"accelerators", encoded(d.Accelerators), func() { d.Accelerators = nil }},
		{"firmware", encoded(d.Firmware), func() { d.Firmware = nil }},
	}
	largest := slices.MaxFunc(parts, func(a, b part) int { return cmp.Compare(a.size, b.size) })
	largest.drop()
	d.Missing = append(d.Missing, largest.name+": left out, the inventory was too large")
}

// cut shortens a list.
func cut[T any](d *Document, name string, list *[]T) {
	if n := len(*list); n > mostItems {
		*list = (*list)[:mostItems]
		d.Missing = append(d.Missing, name+": "+strconv.Itoa(n-mostItems)+" left out, there are too many")
	}
}

// encoded is the size in bytes as JSON.
func encoded(v any) int {
	b, err := json.Marshal(v)
	if err != nil {
		return 0 // strings, numbers and bools always encode
	}
	return len(b)
}

// tidy cleans every text of a value.
func tidy(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(clean(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			tidy(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			tidy(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				tidy(v.Field(i))
			}
		}
	}
}

// clean leaves out control characters, which databases refuse and terminals obey, and the end of a long text.
func clean(s string) string {
	s = safetext.Line(s)
	for len(s) > mostText {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}
