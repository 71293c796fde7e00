package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/task"
)

// presentedTogether bounds the machines of a page that are presented by one set of statements. The parts of a larger
// page are presented side by side: one is read while another one is being decoded.
const presentedTogether = 512

// inParts presents a page in parts of equal size, and returns the messages in the order of the page.
func inParts[T any](ctx context.Context, page []T,
	fn func(context.Context, []T) ([]*baremetalv1.Machine, error),
) ([]*baremetalv1.Machine, error) {
	if len(page) <= presentedTogether {
		return fn(ctx, page)
	}
	n := (len(page) + presentedTogether - 1) / presentedTogether
	parts := make([][]*baremetalv1.Machine, n)
	g, _ := task.New(ctx)
	for i := range parts {
		g.Go("present machines", func(ctx context.Context) (err error) {
			parts[i], err = fn(ctx, page[i*len(page)/n:(i+1)*len(page)/n])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(parts...), nil
}

// present makes messages of machines. Sealed ones have only their id as a field, and the others only on the wire: for
// answers that are not read on this side.
func (s *Store) present(ctx context.Context, rows []dbsqlc.Machine, sealed bool) ([]*baremetalv1.Machine, error) {
	return inParts(ctx, rows, func(ctx context.Context, part []dbsqlc.Machine) ([]*baremetalv1.Machine, error) {
		return s.presentPart(ctx, part, sealed)
	})
}

// presentFound reads machines where they were found and presents them, in the order of the page. One that no longer is
// is left out.
func (s *Store) presentFound(
	ctx context.Context, page []dbsqlc.ChangedMachinesRow, sealed bool,
) ([]*baremetalv1.Machine, error) {
	return inParts(ctx, page, func(ctx context.Context, part []dbsqlc.ChangedMachinesRow) ([]*baremetalv1.Machine, error) {
		var where dbsqlc.MachinesOfPageParams
		for _, f := range part {
			where.MachineIds, where.Places = append(where.MachineIds, f.MachineID), append(where.Places, f.Place)
		}
		rows, err := s.db.Q.MachinesOfPage(ctx, where)
		if err != nil {
			return nil, pgtx.Wrap(err, "read machines of a page")
		}
		return s.presentPart(ctx, rows, sealed)
	})
}

func (s *Store) presentPart(ctx context.Context, rows []dbsqlc.Machine, sealed bool) ([]*baremetalv1.Machine, error) {
	idList := make([]string, 0, len(rows))
	agents := make([]string, 0, len(rows))
	var sites []string
	for i := range rows {
		idList = append(idList, rows[i].MachineID)
		if rows[i].AgentID != nil {
			agents = append(agents, *rows[i].AgentID)
		}
		if !slices.Contains(sites, rows[i].Site) {
			sites = append(sites, rows[i].Site)
		}
	}
	byMachine := map[string][]dbsqlc.MachineCondition{}
	beat := map[string]*time.Time{} // by agent
	var bySite map[string]convert.Seen
	var said map[string]*baremetalv1.ProviderStatus
	err := s.db.Q.Together(ctx,
		func(q *dbsqlc.Queries) error {
			conds, err := q.ConditionsOfPage(ctx, idList)
			for _, c := range conds {
				byMachine[c.MachineID] = append(byMachine[c.MachineID], c)
			}
			return pgtx.Wrap(err, "read conditions")
		},
		func(q *dbsqlc.Queries) error {
			beats, err := q.HeartbeatsOfAgents(ctx, agents)
			for _, b := range beats {
				beat[b.AgentID] = &b.LastHeartbeatAt
			}
			return pgtx.Wrap(err, "read heartbeats")
		},
		func(q *dbsqlc.Queries) (err error) {
			bySite, err = Witnesses(ctx, q, sites)
			return err
		},
		func(q *dbsqlc.Queries) (err error) {
			said, err = ProviderStatuses(ctx, q, idList)
			return err
		},
	)
	if err != nil {
		return nil, err
	}
	out := make([]*baremetalv1.Machine, 0, len(rows))
	var w *machineProto
	if sealed {
		w = newMachineProto(len(rows))
	}
	for _, r := range rows {
		seen := bySite[r.Site]
		seen.Heartbeat = beat[pgtx.StrVal(r.AgentID)]
		if sealed {
			if m, ok := w.machine(r, byMachine[r.MachineID], seen, said[r.MachineID]); ok {
				out = append(out, m)
				continue
			}
		}
		m, err := convert.MachineMessage(r, byMachine[r.MachineID], seen)
		if err != nil {
			return nil, err
		}
		m.Status.Provider = said[r.MachineID]
		out = append(out, m)
	}
	return out, nil
}

// Witnesses returns, by site, the agent of the site that was heard last, and when.
func Witnesses(ctx context.Context, q *dbsqlc.Queries, sites []string) (map[string]convert.Seen, error) {
	rows, err := q.WitnessesOfSites(ctx, pgtx.NonNil(sites))
	if err != nil {
		return nil, fmt.Errorf("read the agents of sites: %w", err)
	}
	out := map[string]convert.Seen{}
	for _, r := range rows {
		out[r.Site] = convert.Seen{SiteAgent: r.AgentID, SiteHeard: r.LastHeartbeatAt}
	}
	return out, nil
}
