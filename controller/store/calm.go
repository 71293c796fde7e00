package store

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// A whole fleet comes back when its controller does. Nearly all of its agents come as they were, to machines on which nothing goes
// on: their hellos are calm, and are stored together. What a hello costs is then paid once for many.

// hellos is what is asked for many sessions at once.
type hellos struct {
	// opening are the sessions that are being opened.
	opening   atomic.Int64
	open      gathered[helloAt, *Opened]
	unsettled gathered[string, []Outgoing]
	end       gathered[ending, struct{}]
	// inventories are what most agents tell first.
	inventories gathered[inventory, bool]
}

func newHellos(s *Store) *hellos {
	return &hellos{
		open:      gathered[helloAt, *Opened]{fn: s.openCalm},
		unsettled: gathered[string, []Outgoing]{fn: s.unsettledOf},
		end:       gathered[ending, struct{}]{fn: s.endSessions},

		inventories: gathered[inventory, bool]{fn: s.storeInventories},
	}
}

type helloAt struct {
	Hello
	at time.Time
}

type ending struct {
	agentID, sessionID string
	at                 time.Time
}

// capabilitySeparator is between capabilities where all of an agent are compared as one text; chr(31) in the query.
const capabilitySeparator = "\x1f"

// openCalm opens those of the sessions that are calm. It gives nil for the others, which have changed nothing.
func (s *Store) openCalm(ctx context.Context, lot []helloAt) ([]*Opened, error) {
	out := make([]*Opened, len(lot))
	err := pgx.BeginTxFunc(ctx, s.pool, groupTx, func(tx pgx.Tx) error {
		clear(out)
		q := s.q.WithTx(tx)
		locked, err := q.LockCalmAgents(ctx, agentsOf(lot))
		if err != nil {
			return fmt.Errorf("lock agents: %w", err)
		}
		free := map[string]bool{}
		for _, id := range locked {
			free[id] = true
		}
		p, at := dbsqlc.OpenCalmSessionsParams{}, map[string]int{}
		for i, h := range lot {
			if free[h.AgentID] {
				delete(free, h.AgentID) // a second hello of one agent in a lot comes after this one, alone
				at[h.AgentID] = i
				addHello(&p, h)
			}
		}
		if len(at) == 0 {
			return nil
		}
		rows, err := q.OpenCalmSessions(ctx, p)
		if err != nil {
			return fmt.Errorf("open sessions: %w", err)
		}
		for _, r := range rows {
			i := at[r.AgentID]
			out[i] = &Opened{
				Epoch: r.Epoch, Role: "host", MachineID: r.MachineID, Site: r.Site, PreviousHardware: lot[i].HardwareFingerprint,
				LastEventSeq: uint64(r.LastEventSeq),
			}
		}
		return nil
	})
	return out, err
}

func agentsOf(lot []helloAt) []string {
	ids := make([]string, len(lot))
	for i, h := range lot {
		ids[i] = h.AgentID
	}
	return ids
}

func addHello(p *dbsqlc.OpenCalmSessionsParams, h helloAt) {
	p.AgentIds, p.Fingerprints = append(p.AgentIds, h.AgentID), append(p.Fingerprints, h.Fingerprint)
	p.SessionIds, p.ControllerIds = append(p.SessionIds, h.SessionID), append(p.ControllerIds, h.ControllerID)
	p.Versions, p.Capabilities = append(p.Versions, h.Version), append(p.Capabilities, strings.Join(h.Capabilities, capabilitySeparator))
	p.Simulated, p.Locked = append(p.Simulated, h.Simulated), append(p.Locked, h.LockedReason != "")
	p.StateIds, p.BootIds = append(p.StateIds, h.StateID), append(p.BootIds, h.BootID)
	p.Hardware, p.Images = append(p.Hardware, h.HardwareFingerprint), append(p.Images, h.ImageDigest)
	p.LastGrants, p.LastEvents = append(p.LastGrants, int64(h.LastGrantSeq)), append(p.LastEvents, int64(h.LastEventSeq))
	p.Ats = append(p.Ats, h.at)
}

// knownCerts reads certificates; nil for one that is not recorded.
func (s *Store) knownCerts(ctx context.Context, fingerprints []string) ([]*Cert, error) {
	rows, err := s.q.KnownCerts(ctx, fingerprints)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	by := map[string]*Cert{}
	for _, c := range rows {
		by[c.Fingerprint] = &Cert{
			Fingerprint: c.Fingerprint, AgentID: c.AgentID, PublicKeyDigest: c.PublicKeyDigest, NotAfter: c.NotAfter,
			Revoked: c.Revoked, Replaced: c.Replaced,
		}
	}
	out := make([]*Cert, len(fingerprints))
	for i, f := range fingerprints {
		out[i] = by[f]
	}
	return out, nil
}

func (s *Store) unsettledOf(ctx context.Context, agentIDs []string) ([][]Outgoing, error) {
	rows, err := s.q.UnsettledCommandsOf(ctx, agentIDs)
	if err != nil {
		return nil, fmt.Errorf("read unsettled commands: %w", err)
	}
	by := map[string][]Outgoing{}
	for _, r := range rows {
		by[r.ExecutorID] = append(by[r.ExecutorID], Outgoing{r.CommandID, r.ExecutorID, r.Spec, r.Digest})
	}
	out := make([][]Outgoing, len(agentIDs))
	for i, id := range agentIDs {
		out[i] = by[id]
	}
	return out, nil
}

func (s *Store) endSessions(ctx context.Context, lot []ending) ([]struct{}, error) {
	p := dbsqlc.EndSessionsParams{}
	for _, e := range lot {
		p.AgentIds, p.SessionIds, p.Ats = append(p.AgentIds, e.agentID), append(p.SessionIds, e.sessionID), append(p.Ats, e.at)
	}
	if err := s.q.EndSessions(ctx, p); err != nil {
		return nil, fmt.Errorf("end sessions: %w", err)
	}
	return make([]struct{}, len(lot)), nil
}
