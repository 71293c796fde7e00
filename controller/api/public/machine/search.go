package machine

import (
	"cmp"
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/domain/machinesearch"
	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	usualHits = 20
	mostHits  = 100
)

// SearchMachines implements MachineService.
func (s *Server) SearchMachines(
	ctx context.Context, r *baremetalv1.SearchMachinesRequest,
) (*baremetalv1.SearchMachinesResponse, error) {
	if r.GetLimit() < 0 || r.GetLimit() > mostHits {
		return nil, failure.Invalid("INVALID_FIELD", "limit is 0 to %d", mostHits).
			WithField("limit", "0 to 100")
	}
	texts, refusal := machinesearch.Texts(r.GetText())
	if refusal != nil {
		return nil, refusal
	}
	in, err := query.Within(ctx)
	if err != nil {
		return nil, err
	}
	var hits []machinesearch.Hit
	for _, text := range texts {
		if hits, err = s.stores.Machines.Search(ctx, in, text); err != nil {
			return nil, err
		}
		if len(hits) > 0 {
			break
		}
	}
	found, more := machinesearch.OneEach(hits, int(cmp.Or(r.GetLimit(), usualHits)))
	out := &baremetalv1.SearchMachinesResponse{More: more}
	for _, h := range found {
		out.Hits = append(out.Hits, &baremetalv1.SearchHit{MachineId: h.MachineID, Field: h.Field, Value: h.Value})
	}
	return out, nil
}
