package budget

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// shareEvery is how old a count of the fleet may be that percentages are taken of. Counting reads every machine.
const shareEvery = 30 * time.Second

// MachineCounts remembers how many machines stand where.
type MachineCounts struct {
	mu    sync.Mutex
	at    time.Time
	keys  []string
	known []budget.Group
}

// groups counts the machines of each site by the values of labels.
func (f *MachineCounts) groups(
	ctx context.Context, q *dbsqlc.Queries, keys []string, now time.Time,
) ([]budget.Group, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if age := now.Sub(f.at); age >= 0 && age < shareEvery && slices.Equal(keys, f.keys) {
		return f.known, nil
	}
	rows, err := q.MachineGroups(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("count machines: %w", err)
	}
	f.at, f.keys, f.known = now, keys, nil
	for _, r := range rows {
		place := budget.Place{Site: r.Site, Labels: map[string]string{}}
		for i, key := range keys {
			place.Labels[key] = r.Values[i]
		}
		f.known = append(f.known, budget.Group{Place: place, Machines: int(r.Machines)})
	}
	return f.known, nil
}
