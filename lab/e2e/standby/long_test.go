//go:build standby

package standby

import "time"

// standbyLoad is how long machines are worked before and after a promotion.
const standbyLoad = 20 * time.Second

var standbyWays = []string{staysUp, restarted, forgetful}
