package session

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// A whole fleet comes back when its controller does. Nearly all of its agents come as they were, to machines on which
// nothing goes on: their hellos are calm, and are stored together. What a hello costs is then paid once for many.

// sessionBatches has the queries for many sessions at once.
type sessionBatches struct {
	// opening are the sessions that are being opened.
	opening   atomic.Int64
	open      pgtx.Batcher[helloAt, *Opened]
	unsettled pgtx.Batcher[string, []operationstore.Outgoing]
	end       pgtx.Batcher[ending, struct{}]
	// inventories are what most agents tell first.
	inventories pgtx.Batcher[inventory, bool]
}

func newSessionBatches(s *Store) *sessionBatches {
	return &sessionBatches{
		open:      pgtx.Batcher[helloAt, *Opened]{Batch: s.openBatch},
		unsettled: pgtx.Batcher[string, []operationstore.Outgoing]{Batch: s.unsettledOf},
		end:       pgtx.Batcher[ending, struct{}]{Batch: s.endSessions},

		inventories: pgtx.Batcher[inventory, bool]{Batch: s.storeInventories},
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

// openBatch opens those of the sessions that are calm. It returns nil for the others, which have changed nothing.
func (s *Store) openBatch(ctx context.Context, lot []helloAt) ([]*Opened, error) {
	out := make([]*Opened, len(lot))
	err := s.db.InSet(ctx, func(tx pgx.Tx) ([]*pgtx.Notes, error) {
		q := s.db.Q.WithTx(tx)
		locked, err := q.LockCalmAgents(ctx, calmParams(lot))
		if err != nil {
			return nil, fmt.Errorf("lock agents: %w", err)
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
			return nil, nil
		}
		rows, err := q.OpenCalmSessions(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("open sessions: %w", err)
		}
		for _, r := range rows {
			i := at[r.AgentID]
			out[i] = &Opened{
				Epoch: r.Epoch, Role: "host", MachineID: r.MachineID, Site: r.Site, PreviousHardware: lot[i].HardwareFingerprint,
				LastEventSeq: uint64(r.LastEventSeq),
			}
		}
		return nil, nil
	})
	return out, err
}

func calmParams(lot []helloAt) (p dbsqlc.LockCalmAgentsParams) {
	for _, h := range lot {
		p.AgentIds, p.BootIds = append(p.AgentIds, h.AgentID), append(p.BootIds, h.BootID)
	}
	return p
}

func addHello(p *dbsqlc.OpenCalmSessionsParams, h helloAt) {
	p.AgentIds, p.Fingerprints = append(p.AgentIds, h.AgentID), append(p.Fingerprints, h.Fingerprint)
	p.SessionIds, p.ControllerIds = append(p.SessionIds, h.SessionID), append(p.ControllerIds, h.ControllerID)
	p.Versions, p.Capabilities = append(p.Versions, h.Version),
		append(p.Capabilities, strings.Join(h.Capabilities, capabilitySeparator))
	p.Simulated, p.Locked = append(p.Simulated, h.Simulated), append(p.Locked, h.LockedReason != "")
	p.StateIds, p.BootIds = append(p.StateIds, h.StateID), append(p.BootIds, h.BootID)
	p.Hardware, p.Images = append(p.Hardware, h.HardwareFingerprint), append(p.Images, h.ImageDigest)
	p.LastGrants, p.LastEvents = append(p.LastGrants, int64(h.LastGrantSeq)), append(p.LastEvents, int64(h.LastEventSeq))
	p.Ats = append(p.Ats, h.at)
}

func (s *Store) unsettledOf(ctx context.Context, agentIDs []string) ([][]operationstore.Outgoing, error) {
	rows, err := s.db.Q.UnsettledCommandsOf(ctx, agentIDs)
	if err != nil {
		return nil, fmt.Errorf("read unsettled commands: %w", err)
	}
	by := map[string][]operationstore.Outgoing{}
	for _, r := range rows {
		by[r.ExecutorID] = append(by[r.ExecutorID], operationstore.Outgoing{CommandID: r.CommandID, ExecutorID: r.ExecutorID,
			Spec: r.Spec, Digest: r.Digest})
	}
	out := make([][]operationstore.Outgoing, len(agentIDs))
	for i, id := range agentIDs {
		out[i] = by[id]
	}
	return out, nil
}

func (s *Store) endSessions(ctx context.Context, lot []ending) ([]struct{}, error) {
	p := dbsqlc.EndSessionsParams{}
	for _, e := range lot {
		p.AgentIds, p.SessionIds, p.Ats = append(p.AgentIds, e.agentID), append(p.SessionIds, e.sessionID),
			append(p.Ats, e.at)
	}
	if err := s.db.Q.EndSessions(ctx, p); err != nil {
		return nil, fmt.Errorf("end sessions: %w", err)
	}
	return make([]struct{}, len(lot)), nil
}
