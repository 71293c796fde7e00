//go:build rolling

package rolling

import "time"

// promised is what docs/howto/several-controllers.md says, held where a machine has nothing else to do.
var promised = limits{late: 5 * time.Second, moves: 5 * time.Second}
