//go:build rolling

package rolling

import "time"

// promised has the limits of docs/howto/several-controllers.md, which hold on a machine without other work.
var promised = limits{late: 5 * time.Second, moves: 5 * time.Second}
