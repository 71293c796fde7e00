// Package rows filters and sorts the rows of lists that are short enough to be read whole, by their own fields.
package rows

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/filter"
)

// Columns are the fields that rows are filtered and sorted by: each that holds one text, number, enum, flag or time.
// Times sort and do not filter.
type Columns struct {
	fields map[string]protoreflect.FieldDescriptor
	query  validate.Query
}

const timestamp protoreflect.FullName = "google.protobuf.Timestamp"

// Of are the columns of a message. Checks are of fields whose values are closed sets; those are no free text.
func Of(d protoreflect.MessageDescriptor, checks validate.Keys) Columns {
	c := Columns{fields: map[string]protoreflect.FieldDescriptor{}, query: validate.Query{Keys: validate.Keys{}}}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		name := string(f.Name())
		check, text := checkOf(f)
		if own := checks[name]; own != nil {
			check, text = own, false
		}
		if f.IsList() || f.IsMap() || check == nil && !isTime(f) {
			continue
		}
		c.fields[name] = f
		if check != nil {
			c.query.Keys[name] = check
		}
		if text {
			c.query.Text = append(c.query.Text, name)
		}
	}
	return c
}

func isTime(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && f.Message().FullName() == timestamp
}

// checkOf is nil for what a filter cannot name.
func checkOf(f protoreflect.FieldDescriptor) (check validate.Check, text bool) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return validate.Any, true
	case protoreflect.BoolKind:
		return validate.Among(map[string]string{"true": "true", "false": "false"}), false
	case protoreflect.EnumKind:
		return validate.Among(enumNames(f.Enum())), false
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return func(value string) (string, bool) {
			n, err := strconv.ParseInt(value, 10, 64)
			return strconv.FormatInt(n, 10), err == nil
		}, false
	}
	return nil, false
}

// enumNames are the names of an enum, with and without what all of them begin with, and the numbers that they mean.
func enumNames(d protoreflect.EnumDescriptor) map[string]string {
	prefix, _ := strings.CutSuffix(string(d.Values().ByNumber(0).Name()), "UNSPECIFIED")
	out := map[string]string{}
	for i := range d.Values().Len() {
		v := d.Values().Get(i)
		if v.Number() != 0 {
			number := strconv.Itoa(int(v.Number()))
			out[string(v.Name())], out[strings.TrimPrefix(string(v.Name()), prefix)] = number, number
		}
	}
	return out
}

// Filter reads a filter in the language of all lists; its keys are the columns. Matches accepts every row where it is
// empty.
func (c Columns) Filter(text string) (matches func(proto.Message) bool, err error) {
	terms, err := c.query.Parse(text)
	if err != nil {
		return nil, err
	}
	return func(m proto.Message) bool {
		return !slices.ContainsFunc(terms, func(t filter.Term) bool { return !holds(t, c.value(t.Key, m)) })
	}, nil
}

func holds(t filter.Term, value string) bool {
	matched := slices.ContainsFunc(t.Values, func(v filter.Value) bool {
		if v.Prefix {
			return value != "" && strings.HasPrefix(value, v.Text)
		}
		return value == v.Text
	})
	return matched != t.Not
}

// value is a row's value as text: numbers in digits, enums by their numbers, times so that texts sort as they do.
func (c Columns) value(name string, m proto.Message) string {
	f := c.fields[name]
	v := m.ProtoReflect().Get(f)
	switch f.Kind() {
	case protoreflect.EnumKind:
		return strconv.Itoa(int(v.Enum()))
	case protoreflect.MessageKind:
		if !v.Message().IsValid() {
			return ""
		}
		fields := v.Message().Descriptor().Fields()
		seconds, nanos := v.Message().Get(fields.ByName("seconds")).Int(), v.Message().Get(fields.ByName("nanos")).Int()
		return time.Unix(seconds, nanos).UTC().Format("2006-01-02T15:04:05.000000000Z")
	}
	return v.String()
}

// Order is an order of rows by one column. The zero Order is none.
type Order struct {
	columns Columns
	by      string
	desc    bool
}

// Order reads an order_by: the name of a column, and " desc" behind it for the other way round. It is INVALID_ORDER_BY
// for anything else.
func (c Columns) Order(text string) (Order, error) {
	if text == "" {
		return Order{}, nil
	}
	name, direction, _ := strings.Cut(strings.TrimSpace(text), " ")
	if direction = strings.TrimSpace(direction); direction != "" && direction != "desc" {
		return Order{}, query.BadOrder("one key, and ` desc` behind it or nothing")
	}
	if c.fields[name] == nil {
		return Order{}, query.BadOrder("%q is none of %s", name,
			strings.Join(slices.Sorted(maps.Keys(c.fields)), ", "))
	}
	return Order{columns: c, by: name, desc: direction == "desc"}, nil
}

// None reports whether there is no order.
func (o Order) None() bool { return o.by == "" }

// Place is where a row stands: its value, and its identifier, which distinguishes equal ones.
type Place struct{ Value, ID string }

// Place is where a row of this identifier stands.
func (o Order) Place(m proto.Message, id string) Place { return Place{o.columns.value(o.by, m), id} }

// Compare orders places. Numbers in texts count as numbers: r2 comes before r10. Equal rows are in the order of their
// identifiers, either way.
func (o Order) Compare(a, b Place) int {
	by := Natural(a.Value, b.Value)
	if o.desc {
		by = -by
	}
	return cmp.Or(by, Natural(a.ID, b.ID))
}

// Natural compares texts by their parts: digits as numbers, all else byte by byte. Texts that differ in leading zeros
// alone are not equal.
func Natural(a, b string) int {
	if by, known := atFirstDifference(a, b); known {
		return by
	}
	x, y := a, b
	for x != "" && y != "" {
		var p, q string
		p, x = part(x)
		q, y = part(y)
		if c := compareParts(p, q); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// atFirstDifference compares texts of which the first bytes that differ settle it: two that are no digits, or two of
// numbers that end at the same place.
func atFirstDifference(a, b string) (by int, known bool) {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(a) || i == len(b) || digit(a[i]) != digit(b[i]) {
		return 0, false
	}
	end := i
	for digit(a[i]) && end < len(a) && end < len(b) && digit(a[end]) && digit(b[end]) {
		end++
	}
	if digit(a[i]) && (end < len(a) && digit(a[end]) || end < len(b) && digit(b[end])) {
		return 0, false
	}
	return cmp.Compare(a[i], b[i]), true
}

// part cuts off the first run of digits, or of other characters.
func part(s string) (first, rest string) {
	digits := digit(s[0])
	i := strings.IndexFunc(s, func(r rune) bool { return (r >= '0' && r <= '9') != digits })
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i:]
}

func digit(b byte) bool { return b >= '0' && b <= '9' }

func compareParts(p, q string) int {
	if !digit(p[0]) || !digit(q[0]) {
		return strings.Compare(p, q)
	}
	p, q = strings.TrimLeft(p, "0"), strings.TrimLeft(q, "0")
	return cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q))
}
