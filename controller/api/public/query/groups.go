package query

import (
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/filter"
)

const (
	// maxGroupKeys is by how many keys machines are counted at once.
	maxGroupKeys = 3
	// MaxGroups is how many groups an answer has at most.
	MaxGroups = 1000
)

// Count is what the store needs to count machines.
type Count struct {
	// Keys are those of the groups, by their own names.
	Keys []string
	// Counter asks for the values that are texts.
	Counter machinestore.Counter
	// Rest are the terms that the store's answer has not been narrowed by: those of what a machine's facts mean.
	Rest []filter.Term
}

// CountQuery turns a filter and the keys of groups into one question to the store.
func CountQuery(terms []filter.Term, groupBy []string) (Count, error) {
	var c Count
	if len(groupBy) > maxGroupKeys {
		return c, badGroupBy("at most %d keys", maxGroupKeys)
	}
	for _, name := range groupBy {
		key, ok := Machines.Key(name)
		switch {
		case !ok:
			return c, badGroupBy("%q is none of %s", name, strings.Join(Machines.Names(), ", "))
		case slices.Contains(c.Keys, key):
			return c, badGroupBy("%q is there twice", name)
		}
		c.Keys = append(c.Keys, key)
	}
	for _, t := range terms {
		if IsText(t.Key) {
			c.Counter.Filter = narrowText(c.Counter.Filter, t)
		} else {
			c.Rest = append(c.Rest, t)
		}
	}
	for _, key := range c.Keys {
		if IsText(key) {
			c.Counter.Values = append(c.Counter.Values, specField(key))
		} else {
			c.asks(key)
		}
	}
	for _, t := range c.Rest {
		c.asks(t.Key)
	}
	return c, nil
}

// asks adds the facts that a key is made of.
func (c *Count) asks(key string) {
	c.Counter.Facts = true
	condition := strings.TrimPrefix(key, "conditions.")
	types := []fleet.ConditionType{fleet.ConditionType(condition),
		fleet.ConditionType(machinestore.UnknownPrefix + condition)}
	switch key {
	case "node_state":
		return
	case "phase": // those that are no longer stored
		types = []fleet.ConditionType{fleet.InCustomerCluster, fleet.RMA, fleet.RetiredFlag}
	case "effective_state":
		types = []fleet.ConditionType{fleet.RMA, fleet.RetiredFlag, fleet.NeedsIntervention, fleet.Provisioned,
			fleet.Reachable}
	case "attention_reason":
		types = []fleet.ConditionType{fleet.RMA, fleet.RetiredFlag, fleet.NeedsIntervention, fleet.Provisioned,
			fleet.Reachable, machinestore.UnknownPrefix + fleet.Reachable}
	}
	for _, t := range types {
		if !slices.Contains(c.Counter.Conditions, string(t)) {
			c.Counter.Conditions = append(c.Counter.Conditions, string(t))
		}
	}
}

// IsText reports whether a key is free text, which the store compares by itself.
func IsText(key string) bool {
	return slices.Contains(Machines.Text, key) || strings.HasPrefix(key, "labels.")
}

func badGroupBy(format string, args ...any) error { return badKey("group_by", format, args...) }

func badKey(field, format string, args ...any) error {
	e := failure.Invalid("INVALID_GROUP_BY", field+": "+format, args...)
	return e.WithField(field, strings.TrimPrefix(e.Message, field+": "))
}
