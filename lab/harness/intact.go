package harness

import (
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Intact verifies all histories, as `ingot audit verify` does, and returns their heads. A history at fault fails the
// test.
func (c *Client) Intact() []*baremetalv1.HistoryHead {
	c.t.Helper()
	var heads []*baremetalv1.HistoryHead
	for token, more := "", true; more; more = token != "" {
		resp, err := c.Machines().VerifyTimeline(c.t.Context(), &baremetalv1.VerifyTimelineRequest{PageToken: token,
			PageSize: 200})
		if err != nil {
			c.t.Fatalf("verify histories: %v", err)
		}
		for _, v := range resp.GetVerdicts() {
			if !v.GetOk() {
				c.t.Errorf("the history of %q is at fault: %d %s %v", v.GetMachineId(), v.GetBrokenSeq(), v.GetBrokenWhy(),
					v.GetDifferences())
			}
			heads = append(heads, &baremetalv1.HistoryHead{MachineId: v.GetMachineId(), Entries: v.GetEntries(),
				HeadHash: v.GetHeadHash(), HeadAt: v.GetHeadAt()})
		}
		token = resp.GetNextPageToken()
	}
	return heads
}

// HeadsNotKept returns what the controller answers of heads that its histories do not have, by machine.
func (c *Client) HeadsNotKept(heads []*baremetalv1.HistoryHead) map[string]baremetalv1.HeadFinding {
	c.t.Helper()
	resp, err := c.Admin().GetHeadVerdicts(c.t.Context(), &baremetalv1.GetHeadVerdictsRequest{Heads: heads})
	if err != nil {
		c.t.Fatalf("compare heads: %v", err)
	}
	out := map[string]baremetalv1.HeadFinding{}
	for _, v := range resp.GetVerdicts() {
		if v.GetFinding() != baremetalv1.HeadFinding_HEAD_FINDING_KEPT {
			out[v.GetMachineId()] = v.GetFinding()
		}
	}
	return out
}
