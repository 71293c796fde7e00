package admin

import (
	"context"
	"crypto/sha256"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/timeline"
	"github.com/ingot-metal/ingot/controller/validate"
)

// maxHeads bounds the heads of one call.
const maxHeads = 200

var headFindings = map[timeline.Finding]baremetalv1.HeadFinding{
	timeline.Kept:          baremetalv1.HeadFinding_HEAD_FINDING_KEPT,
	timeline.LostByRestore: baremetalv1.HeadFinding_HEAD_FINDING_RESTORED,
	timeline.Lost:          baremetalv1.HeadFinding_HEAD_FINDING_LOST,
}

// GetHeadVerdicts implements AdminService.
func (s *Server) GetHeadVerdicts(
	ctx context.Context, r *baremetalv1.GetHeadVerdictsRequest,
) (*baremetalv1.GetHeadVerdictsResponse, error) {
	heads, err := keptHeads(r.GetHeads())
	if err != nil {
		return nil, err
	}
	present, err := s.stores.Timelines.Present(ctx, heads)
	if err != nil {
		return nil, err
	}
	out := &baremetalv1.GetHeadVerdictsResponse{}
	for i, h := range heads {
		finding, why := h.Compare(present[i])
		out.Verdicts = append(out.Verdicts, &baremetalv1.HeadVerdict{MachineId: h.MachineID, Finding: headFindings[finding],
			Why: why})
	}
	return out, nil
}

func keptHeads(all []*baremetalv1.HistoryHead) ([]timeline.Head, error) {
	if len(all) > maxHeads {
		return nil, validate.Fault("heads", "at most %d", maxHeads)
	}
	out := make([]timeline.Head, 0, len(all))
	for i, h := range all {
		field := func(name string) string { return fmt.Sprintf("heads[%d].%s", i, name) }
		switch {
		case h.GetEntries() < 0:
			return nil, validate.Fault(field("entries"), "not negative")
		case h.GetEntries() > 0 && len(h.GetHeadHash()) != sha256.Size:
			return nil, validate.Fault(field("head_hash"), "%d bytes", sha256.Size)
		case h.GetEntries() > 0 && (h.GetHeadAt() == nil || !h.GetHeadAt().IsValid()):
			return nil, validate.Fault(field("head_at"), "the time of the entry")
		}
		if err := validate.OptionalKey(field("machine_id"), h.GetMachineId()); err != nil {
			return nil, err
		}
		out = append(out, timeline.Head{MachineID: h.GetMachineId(), Entries: h.GetEntries(), Hash: h.GetHeadHash(),
			Time: h.GetHeadAt().AsTime()})
	}
	return out, nil
}
