package query

import (
	"context"

	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/internal/filter"
)

// Within returns the selections that the call's caller is held to. A caller with a role on all machines is held to
// none.
func Within(ctx context.Context) (machinefilter.Selections, error) {
	caller, _ := call.Caller(ctx) // behind the guard; the zero Caller of a test is not restricted
	texts, restricted := caller.Within()
	if !restricted {
		return machinefilter.Selections{}, nil
	}
	all := make([][]filter.Term, 0, len(texts))
	for _, text := range texts {
		terms, err := Machines.Parse(text)
		if err != nil {
			return machinefilter.Selections{}, err
		}
		all = append(all, terms)
	}
	return machinefilter.SelectionsOf(all), nil
}
