//go:build rolling

package rolling

import "testing"

// TestJobsLong kills each of three controllers amid 1,000 operations that are under way, and runs 10,000 more through.
func TestJobsLong(t *testing.T) {
	j := startJobs(t, 250)
	for i := range j.r.Controllers {
		j.kill(i, 1000, promised.moves)
	}
	j.operate("after", 10_000, nil)
	j.nothingLeft()
}
