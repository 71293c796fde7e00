package pgtx

import "time"

// LimitStatus bounds how long the outcome of a transaction is read for.
func LimitStatus(s *DB, d time.Duration) { s.statusLimit = d }
