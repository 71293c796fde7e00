package authority

import (
	"fmt"
	"strconv"
	"time"

	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/secret"
)

func sealName(number int) string { return "certificate authority\x00" + strconv.Itoa(number) }

// Seal makes a generation of a record, with its keys sealed.
func Seal(box *secret.Box, r ca.Record) Generation {
	g := Generation{Number: r.Generation, Root: r.Root, Intermediate: r.Intermediate, Cross: r.Cross, Created: r.Created,
		Withdrawn: r.Withdrawn}
	if len(r.Keys) > 0 {
		g.Sealed = box.Seal(sealName(r.Generation), r.Keys)
	}
	return g
}

// Open makes a record of a generation. grace is how long its root is vouched for once it is withdrawn.
func Open(box *secret.Box, g Generation, grace time.Duration) (ca.Record, error) {
	r := ca.Record{Generation: g.Number, Root: g.Root, Intermediate: g.Intermediate, Cross: g.Cross, Created: g.Created,
		Withdrawn: g.Withdrawn}
	if !g.Withdrawn.IsZero() {
		r.Vouched = g.Withdrawn.Add(grace)
	}
	if len(g.Sealed) == 0 {
		return r, nil
	}
	keys, err := box.Open(sealName(g.Number), g.Sealed)
	if err != nil {
		return r, fmt.Errorf("open the keys of generation %d of the CA: %w", g.Number, err)
	}
	r.Keys = keys
	return r, nil
}
