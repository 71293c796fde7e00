package engine

import (
	"context"
	"crypto/ed25519"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/position"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/controller/store/incarnation"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Marks keeps the last mark of the database's position over restarts.
type Marks interface {
	Load() (position.Mark, error)
	Save(position.Mark) error
}

// noMarks is for an engine that has no directory of its own.
type noMarks struct{}

func (noMarks) Load() (position.Mark, error) { return position.Mark{}, nil }
func (noMarks) Save(position.Mark) error     { return nil }

// comparePeriod is how often the controller counts its beat up and compares the database with what it has seen
// committed.
const comparePeriod = time.Second

// inDoubtRetry is when an agent asks again for a grant that waits for the comparison, in milliseconds.
const inDoubtRetry = 250

// positionCheck compares the database with what this controller has seen committed.
type positionCheck struct {
	common
	incarnations *incarnation.Store
	changes      *changes
	// doubt wakes the comparison.
	doubt signal
}

// sure reports whether the database that answers now was compared by all controllers with what they have seen.
func (p *positionCheck) sure() bool { return p.incarnations.PositionSure() }

// compare compares the database with what this controller has seen. Until all controllers have, no grant is
// given.
func (p *positionCheck) compare(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, p.cfg.Lease/3)
	defer cancel()
	c, err := p.incarnations.ComparePosition(limited, p.cfg.ControllerID, p.clock.Now())
	if err != nil {
		return err
	}
	if c.Lost != "" {
		p.log.Error("the database has gone back; the fleet is frozen", "reason", "DATABASE_WENT_BACK", "what", c.Lost)
		p.changes.publish()
		p.doubt.fire() // the next comparison begins with the new incarnation
	}
	if c.Anew {
		// The database may lack the sessions. Agents come again, and each shows the last grant that it has used.
		p.cfg.Sessions.CloseAll(session.ErrHistory)
	}
	if c.Lost != "" {
		return nil
	}
	if c.Waiting {
		p.log.Info("no grant is given before all controllers have compared the database with what they have seen")
	}
	return p.cfg.Marks.Save(c.Mark)
}

// start compares once before anything else, with the mark of the start before.
func (p *positionCheck) start(ctx context.Context) {
	m, err := p.cfg.Marks.Load()
	if err != nil {
		p.log.Warn("the mark of the last start cannot be read; agents' grants are compared all the same", "error",
			err.Error())
	}
	p.incarnations.RememberMark(m)
	w := work{what: "compare the database's position"}
	p.attempt(ctx, &w, p.compare)
}

// refuseInDoubt has the agent ask again in a moment.
func refuseInDoubt(r *fleetv1.GrantRequest) *fleetv1.ControllerMessage {
	return &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_GrantRefused{GrantRefused: &fleetv1.GrantRefused{
		CommandId: r.GetCommandId(), Nonce: r.GetNonce(), Reason: "DATABASE_IN_DOUBT", RetryAfterMs: inDoubtRetry,
		Message: "another database server answers than before; the controllers compare it with what they have seen",
	}}}
}

// startedGrant compares a grant that an agent reports to have begun a command under. Only a controller can have signed
// it: a database that does not know it has gone back, and no agent can make that up.
func (p *positionCheck) startedGrant(ctx context.Context, agentID string, s *fleetv1.StartedGrant) error {
	g := s.GetGrant()
	if g == nil {
		return nil
	}
	public, ok := p.cfg.GrantKey.Public().(ed25519.PublicKey)
	if !ok {
		return nil // there is no other kind of key
	}
	err := pki.VerifyGrant(public, pki.GrantClaims{
		CommandID: g.GetCommandId(), TargetID: g.GetTargetId(), AgentID: agentID, StateID: s.GetStateId(),
		Nonce:  g.GetNonce(),
		Digest: g.GetDigest(), Seq: g.GetSeq(), IssuedAtUnixMs: g.GetIssuedAtUnixMs(),
	}, g.GetSignature())
	if err != nil {
		// Of an earlier key, or made up: it proves nothing.
		p.log.Debug("a grant that an agent holds proves nothing", "agent_id", agentID, "error", err.Error())
		return nil
	}
	issued := time.UnixMilli(g.GetIssuedAtUnixMs())
	lost, err := p.incarnations.GrantWasLost(ctx, g.GetCommandId(), g.GetSeq(), agentID, issued, p.clock.Now())
	if lost {
		p.log.Error("the database has gone back; the fleet is frozen", "reason", "DATABASE_WENT_BACK", "agent_id", agentID,
			"command_id", g.GetCommandId())
		p.changes.publish()
	}
	return err
}
