package program

import (
	"context"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Verdicts verifies all histories, as "ingot audit verify" does. Each call has the time of limit.
func Verdicts(
	ctx context.Context, machines baremetalv1.MachineServiceClient, limit time.Duration,
) (all []*baremetalv1.TimelineVerdict, err error) {
	for token := ""; ; {
		call, cancel := context.WithTimeout(ctx, limit)
		page, err := machines.VerifyTimeline(call, &baremetalv1.VerifyTimelineRequest{PageToken: token})
		cancel()
		if err != nil {
			return all, fmt.Errorf("verify the histories: %w", err)
		}
		all = append(all, page.GetVerdicts()...)
		if token = page.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}
