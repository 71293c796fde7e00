package engine

import (
	"context"
	"hash/maphash"
	"sync/atomic"

	"github.com/ingot-metal/ingot/controller/session"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
)

// revocations ends the sessions of certificates that other controllers have revoked.
type revocations struct {
	common
	agents *agentstore.Store
	// revoked wakes the check.
	revoked signal
	// announced reports that a revocation was announced since the last check.
	announced atomic.Bool
	// turn numbers the checks; only their loop uses it.
	turn uint64
}

// revocationsAtOnce is about how many sessions are checked each time where no revocation was announced.
const revocationsAtOnce = 2000

var partSeed = maphash.MakeSeed()

// heard has all sessions looked at.
func (r *revocations) heard() {
	r.announced.Store(true)
	r.revoked.fire()
}

// check ends sessions whose certificate another controller has revoked: it looks at all when it was told of one,
// and otherwise at some, in turns.
func (r *revocations) check(ctx context.Context) error {
	told := r.announced.Swap(false)
	used := r.certificates(r.cfg.Sessions.All(), told)
	if len(used) == 0 {
		return nil
	}
	gone, err := r.agents.RevokedAmong(ctx, used)
	if err != nil {
		if told {
			r.announced.Store(true)
		}
		return err
	}
	r.cfg.Sessions.CloseFingerprints(gone, session.ErrRevoked)
	return nil
}

// certificates returns those of all sessions, or of the part of them whose turn it is.
func (r *revocations) certificates(all []*session.Session, whole bool) []string {
	parts := uint64(1)
	if !whole {
		parts = uint64(len(all)/revocationsAtOnce + 1)
	}
	r.turn++
	var used []string
	for _, s := range all {
		if maphash.String(partSeed, s.AgentID)%parts == r.turn%parts {
			used = append(used, s.Fingerprint)
		}
	}
	return used
}
