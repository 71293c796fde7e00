//go:build rolling

package rolling

import "time"

// promised is what docs/high-availability.md says, held where a machine has nothing else to do.
var promised = limits{late: 5 * time.Second, moves: 5 * time.Second}
