package query

import (
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/filter"
)

// orders are the keys that machines are listed by.
var orders = []string{"machine_id", "site", "rack", "updated_at", "effective_state"}

// ParseOrder reads an order of machines; the zero Order is none.
func ParseOrder(text string) (machinestore.Order, error) {
	if text == "" {
		return machinestore.Order{}, nil
	}
	name, direction, desc := strings.Cut(strings.TrimSpace(text), " ")
	if direction = strings.TrimSpace(direction); desc && direction != "desc" {
		return machinestore.Order{}, BadOrder("one key, and ` desc` behind it or nothing")
	}
	key, _ := Machines.Key(name) // an unknown key is "", which is none of orders
	if key != "updated_at" && !slices.Contains(orders, key) {
		return machinestore.Order{}, BadOrder("%q is none of %s", name, strings.Join(orders, ", "))
	}
	return machinestore.Order{By: key, Desc: desc}, nil
}

// BadOrder refuses an order_by.
func BadOrder(format string, args ...any) error {
	e := failure.Invalid("INVALID_ORDER_BY", "order_by: "+format, args...)
	return e.WithField("order_by", strings.TrimPrefix(e.Message, "order_by: "))
}

// Part is a part of a list in an order: what comes before is in the parts before.
type Part struct {
	// Key is what the machines of the part have in common; empty where there is one part.
	Key   string
	Walks []machinestore.MachineFilter
}

// InParts turns a filter into parts that follow one another in an order, and the order within each.
func InParts(terms []filter.Term, order machinestore.Order) ([]Part, machinestore.Order) {
	if order.By != "effective_state" {
		return []Part{{Walks: MachineQuery(terms)}}, order
	}
	var out []Part
	for _, state := range fleet.EffectiveStates() {
		of := filter.Term{Key: "effective_state", Values: []filter.Value{{Text: string(state)}}}
		out = append(out, Part{Key: string(state), Walks: MachineQuery(append(slices.Clone(terms), of))})
	}
	if order.Desc {
		slices.Reverse(out)
	}
	return out, machinestore.Order{By: "machine_id", Desc: order.Desc}
}
