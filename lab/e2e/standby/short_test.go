//go:build !standby

package standby

import "time"

// standbyLoad is how long machines are worked before and after a promotion.
const standbyLoad = 1500 * time.Millisecond

var standbyWays = []string{staysUp, forgetful}
