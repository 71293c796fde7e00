package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/agent"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/planted"
)

// Hello is an agent's first message of a session, together with its certificate's identity.
type Hello struct {
	AgentID, Fingerprint, SessionID, ControllerID     string
	Version                                           string
	Capabilities                                      []string
	Simulated                                         bool
	BootID, HardwareFingerprint, StateID, ImageDigest string
	LockedReason                                      string
	LastGrantSeq, LastEventSeq                        uint64
	// PreviousStateID is the memory that the agent has given up, while it doubts which of its events are stored; else
	// empty.
	PreviousStateID string
}

// Opened is a session that has been recorded.
type Opened struct {
	Epoch     int64
	Role      string
	MachineID string
	Site      string
	// PreviousHardware is the hardware that the agent was known by.
	PreviousHardware string
	// RolledBack is set when the agent's memory is an older copy of one that has been seen.
	RolledBack bool
	// Cloned is set when an old boot of this identity has come back after a newer one.
	Cloned bool
	// LastEventSeq is the highest event number seen under this memory.
	LastEventSeq uint64
	// PreviousEventSeq is that of the memory given up.
	PreviousEventSeq uint64
	// Operations that the new session may concern.
	Operations []string
}

// crowded is how many sessions are being opened when those that are calm are opened together: one alone gains nothing
// by it.
const crowded = 4

// OpenSession records a new session under the next epoch. The newest session of an identity wins.
func (s *Store) OpenSession(ctx context.Context, h Hello, now time.Time) (*Opened, error) {
	defer s.batches.opening.Add(-1)
	asked := s.db.Now()
	if s.batches.opening.Add(1) >= crowded && h.PreviousStateID == "" {
		out, err := s.batches.open.Do(ctx, helloAt{h, now})
		if out != nil {
			return out, nil
		}
		if pgtx.OutcomeUnknown(err) {
			return nil, fmt.Errorf("open session: %w", err)
		}
		if err != nil {
			s.db.Log.Debug("sessions were not opened together; each is opened alone", "error", err.Error())
		}
		now = s.db.Later(now, asked)
	}
	var out *Opened
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		out, err = s.openSession(ctx, q, h, now)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return out, nil
}

func (s *Store) openSession(ctx context.Context, q *dbsqlc.Queries, h Hello, now time.Time) (*Opened, error) {
	f, err := helloFacts(ctx, q, h)
	if err != nil {
		return nil, err
	}
	if err := f.Refuse(); err != nil {
		return nil, err
	}
	before, machine := f.agent, f.machine
	if err := useCert(ctx, q, h, f.cert, now); err != nil {
		return nil, err
	}
	out := &Opened{Role: before.Role, MachineID: pgtx.StrVal(before.MachineID), Site: before.Site,
		PreviousHardware: before.HardwareFingerprint}
	if err := compareMemory(ctx, q, h, out, now); err != nil {
		return nil, err
	}
	if out.PreviousEventSeq, err = storedBefore(ctx, q, h); err != nil {
		return nil, err
	}
	hardware := hwid.Known(before.HardwareFingerprint, h.HardwareFingerprint)
	if out.Epoch, err = recordHello(ctx, q, h, hardware, now); err != nil {
		return nil, err
	}
	if machine != nil {
		if err := machineSeen(ctx, q, *machine, h, out, now); err != nil {
			return nil, err
		}
	}
	if out.Operations, err = touched(ctx, q, before); err != nil {
		return nil, err
	}
	return out, s.decideCurrent(ctx, q, h, machine, out, now)
}

// decideCurrent brings the session to the current operation of its machine, which the transaction has locked. The
// session of a clone proves nothing, and a machine that retires may lose the identity of this session.
func (s *Store) decideCurrent(
	ctx context.Context, q *dbsqlc.Queries, h Hello, m *dbsqlc.Machine, out *Opened, now time.Time,
) error {
	if s.decide == nil || m == nil || out.Cloned || m.Retiring != nil {
		return nil
	}
	current := pgtx.StrVal(m.CurrentOperationID)
	i := slices.Index(out.Operations, current)
	if i < 0 {
		return nil
	}
	out.Operations = slices.Delete(out.Operations, i, i+1)
	return s.decide(ctx, q, current, out.Event(h.AgentID, h.StateID, h.BootID), now)
}

// Event returns the session as the event of an operation.
func (o *Opened) Event(agentID, stateID, bootID string) operation.SessionOpened {
	return operation.SessionOpened{
		AgentID: agentID, StateID: stateID, BootID: bootID, OfTarget: o.Role == "host", Installer: o.Role == "installer",
		RolledBack: o.RolledBack, Epoch: o.Epoch,
	}
}

// touched returns the operations that an agent's session may move on, oldest first; those that wait for a site's agent
// follow.
func touched(ctx context.Context, q *dbsqlc.Queries, a dbsqlc.Agent) (operationIDs []string, err error) {
	own, err := q.OperationsTouchedByAgent(ctx, a.AgentID)
	if err != nil {
		return nil, fmt.Errorf("read operations of the agent: %w", err)
	}
	have := make(map[string]bool, len(own))
	for _, id := range own {
		operationIDs, have[id] = append(operationIDs, id), true
	}
	if a.Role != "site" {
		return operationIDs, nil
	}
	waiting, err := q.OperationsWaitingForSiteAgent(ctx, a.Site)
	if err != nil {
		return nil, fmt.Errorf("read operations that wait for the site's agent: %w", err)
	}
	for _, id := range waiting {
		if !have[id] {
			operationIDs = append(operationIDs, id)
		}
	}
	return operationIDs, nil
}

// hello is what decides whether a session is opened, with the rows that it is made of.
type hello struct {
	agent.Hello
	agent   dbsqlc.Agent
	machine *dbsqlc.Machine
	cert    dbsqlc.AgentCert
}

// helloFacts reads them in the session's own transaction, so that a revocation that has committed counts. The machine
// is locked before anything that belongs to it, and so that an installer's operation cannot end meanwhile.
func helloFacts(ctx context.Context, q *dbsqlc.Queries, h Hello) (f hello, err error) {
	known, err := q.GetAgent(ctx, h.AgentID)
	if errors.Is(err, pgx.ErrNoRows) {
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("read agent: %w", err)
	}
	f.Known = true
	if known.MachineID != nil {
		m, err := q.LockMachine(ctx, *known.MachineID)
		if err != nil {
			return f, fmt.Errorf("lock machine: %w", err)
		}
		f.machine = &m
		f.Machine = &agent.Machine{ID: m.MachineID, Deleted: m.DeletedAt != nil, State: fleet.NodeState(m.NodeState)}
	}
	if f.agent, err = q.LockAgent(ctx, h.AgentID); err != nil {
		return f, fmt.Errorf("lock agent: %w", err)
	}
	f.Role = f.agent.Role
	f.cert, err = q.GetCert(ctx, h.Fingerprint)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return f, fmt.Errorf("read certificate: %w", err)
	}
	if err == nil && f.cert.AgentID == h.AgentID {
		f.Certificate = &agent.Certificate{Revoked: f.cert.RevokedAt != nil, Replaced: f.cert.ReplacedAt != nil}
	}
	if f.Role != agent.Installer {
		return f, nil
	}
	f.Stands, err = q.InstallerStands(ctx, h.AgentID)
	return f, pgtx.Wrap(err, "read the installer's operation")
}

// useCert records that a certificate has opened a session: older ones are replaced by it.
func useCert(ctx context.Context, q *dbsqlc.Queries, h Hello, cert dbsqlc.AgentCert, now time.Time) error {
	if cert.FirstUsedAt != nil {
		return nil
	}
	if err := q.MarkCertUsed(ctx, dbsqlc.MarkCertUsedParams{Fingerprint: h.Fingerprint, Now: &now}); err != nil {
		return fmt.Errorf("mark certificate as used: %w", err)
	}
	err := q.ReplaceOlderCerts(ctx, dbsqlc.ReplaceOlderCertsParams{
		AgentID: h.AgentID, Fingerprint: h.Fingerprint, IssuedBefore: cert.IssuedAt, Now: &now,
	})
	if err != nil {
		return fmt.Errorf("replace older certificates: %w", err)
	}
	return nil
}

// compareMemory compares the agent's memory and boot with those that were seen before.
func compareMemory(ctx context.Context, q *dbsqlc.Queries, h Hello, out *Opened, now time.Time) error {
	var st dbsqlc.AgentState
	err := q.Together(ctx,
		func(q *dbsqlc.Queries) error {
			return pgtx.Wrap(q.InsertAgentState(ctx, dbsqlc.InsertAgentStateParams{AgentID: h.AgentID, StateID: h.StateID,
				Now: now}), "record memory")
		},
		func(q *dbsqlc.Queries) (err error) {
			st, err = q.LockAgentState(ctx, dbsqlc.LockAgentStateParams{AgentID: h.AgentID, StateID: h.StateID})
			return pgtx.Wrap(err, "read memory")
		},
		func(q *dbsqlc.Queries) error {
			return pgtx.Wrap(q.InsertAgentBoot(ctx, dbsqlc.InsertAgentBootParams{AgentID: h.AgentID, BootID: h.BootID,
				Now: now}), "record boot")
		},
		func(q *dbsqlc.Queries) (err error) {
			out.Cloned, err = q.BootIsOld(ctx, dbsqlc.BootIsOldParams{AgentID: h.AgentID, BootID: h.BootID})
			return pgtx.Wrap(err, "compare boots")
		},
	)
	if err != nil {
		return err
	}
	out.LastEventSeq = uint64(st.LastEventSeq)
	older := int64(h.LastGrantSeq) < st.LastGrantSeq || int64(h.LastEventSeq) < st.LastEventSeq
	out.RolledBack = older && !planted.MemoryNumbers
	return nil
}

// storedBefore is the number of the last event that was stored under the memory that the agent has given up.
func storedBefore(ctx context.Context, q *dbsqlc.Queries, h Hello) (uint64, error) {
	if h.PreviousStateID == "" {
		return 0, nil
	}
	st, err := q.LockAgentState(ctx, dbsqlc.LockAgentStateParams{AgentID: h.AgentID, StateID: h.PreviousStateID})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("read the memory given up: %w", err)
	}
	return uint64(st.LastEventSeq), nil
}

func recordHello(ctx context.Context, q *dbsqlc.Queries, h Hello, hardware string, now time.Time) (int64, error) {
	epoch, err := q.UpdateAgentAtHello(ctx, dbsqlc.UpdateAgentAtHelloParams{
		AgentID: h.AgentID, Version: h.Version, Capabilities: pgtx.NonNil(h.Capabilities), Simulated: h.Simulated,
		Locked: h.LockedReason != "", StateID: h.StateID, BootID: h.BootID, HardwareFingerprint: hardware,
		OsImageDigest: h.ImageDigest,
	})
	if err != nil {
		return 0, fmt.Errorf("update agent: %w", err)
	}
	err = q.StartSession(ctx, dbsqlc.StartSessionParams{
		AgentID: h.AgentID, SessionID: h.SessionID, Epoch: epoch, ControllerID: h.ControllerID, Fingerprint: h.Fingerprint,
		StateID: h.StateID, BootID: h.BootID, Now: now,
	})
	if err != nil {
		return 0, fmt.Errorf("start session: %w", err)
	}
	return epoch, nil
}

// machineSeen updates the machine of a host agent: boot, reachability, coarse state, and proof for a fence.
func machineSeen(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, h Hello, out *Opened, now time.Time) error {
	if out.Role == agent.Installer {
		return installerSeen(ctx, q, m, h, out, now)
	}
	if out.Role != "host" {
		return nil
	}
	if out.Cloned {
		return operationstore.Quarantine(ctx, q, m, "CLONE_DETECTED",
			"an older boot of this machine's identity came back after a newer one", now)
	}
	err := q.SetMachineAgent(ctx, dbsqlc.SetMachineAgentParams{
		MachineID: m.MachineID, AgentID: &h.AgentID, BootID: h.BootID, Simulated: h.Simulated,
	})
	if err != nil {
		return fmt.Errorf("record the machine's boot: %w", err)
	}
	if err := settleByProof(ctx, q, m, h, out, now); err != nil {
		return err
	}
	if operation.ProvesReboot(m.BootID, h.BootID) && pgtx.StrVal(m.AgentID) == h.AgentID {
		// The same identity in another boot: the machine's own system has started.
		booted := fleet.Happened{Cures: []fleet.Cure{fleet.CuredByBoot}}
		if err := machinestore.CureCauses(ctx, q, m.MachineID, booted, "NewBoot", now); err != nil {
			return err
		}
	}
	if err := nodeSeen(ctx, q, m, h.AgentID, now); err != nil {
		return err
	}
	if node.Parse(m.NodeState) != node.Active { // an active node's agent has not been silent
		if err := nodestate.KnowFaults(ctx, q, m.MachineID); err != nil {
			return err
		}
	}
	if out.RolledBack {
		if err := machinestore.RaiseCause(ctx, q, m.MachineID, "",
			machinestore.MemoryCause("the agent came back with an older copy of its memory"), now); err != nil {
			return err
		}
	}
	return machinestore.SetCondition(ctx, q, m.MachineID,
		operation.ConditionChange{Type: fleet.Reachable, Status: true, Reason: "SessionOpen"}, now)
}

// nodeSeen moves the node of a machine whose own agent has opened a session: a new one that passes its health checks
// has been adopted, one that was offline is back.
func nodeSeen(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, agentID string, now time.Time) error {
	state := node.Parse(m.NodeState)
	held, err := nodestate.HeldByWorkflow(ctx, q, m.MachineID, state)
	if err != nil || held {
		return err // an onboarding verifies it first
	}
	switch state {
	case node.BootstrapIssued, node.Enrolling:
		_, err := nodestate.Arrive(ctx, q, m, agentID, now)
		return err
	case node.Offline:
		return nodestate.MoveNode(ctx, q, m.MachineID, node.Active, node.System, agentID, "", nil, now)
	}
	return nil
}

// settleByProof lifts a fence that a new boot has proven to be over. The boot of another machine that uses the identity
// proves nothing, however often it comes.
func settleByProof(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, h Hello, out *Opened, now time.Time,
) error {
	if m.UnresolvedCommandID == nil {
		return nil
	}
	row, err := q.GetCommand(ctx, *m.UnresolvedCommandID)
	if err != nil {
		return fmt.Errorf("read unresolved command: %w", err)
	}
	c := convert.CommandFromRow(&row)
	if !operation.ProofSettles(c, operation.Booted{AgentID: h.AgentID, Role: out.Role, BootID: h.BootID}) {
		return nil
	}
	known := out.PreviousHardware
	if c.Evidence[evidence.HostAgentID] == h.AgentID {
		known = cmp.Or(c.Evidence[evidence.HostHardware], known)
	}
	if hwid.Compare(known, h.HardwareFingerprint).Other() && !planted.BootHardware {
		return nil
	}
	return operationstore.SettleCommand(ctx, q, m.MachineID, c, "new_boot", now)
}

// EndSession records that a session is over, unless a newer one has taken its place.
func (s *Store) EndSession(ctx context.Context, agentID, sessionID string, now time.Time) error {
	_, err := s.batches.end.Do(ctx, ending{agentID, sessionID, now})
	return err
}

// FlushHeartbeats stores the last sign of life of many sessions in one statement.
func (s *Store) FlushHeartbeats(ctx context.Context, at map[string]time.Time) error {
	p := dbsqlc.FlushHeartbeatsParams{}
	for id, t := range at {
		p.SessionIds = append(p.SessionIds, id)
		p.Ats = append(p.Ats, t)
	}
	if err := s.db.Q.FlushHeartbeats(ctx, p); err != nil {
		return fmt.Errorf("flush heartbeats: %w", err)
	}
	return nil
}

// Unsettled reads the commands that an executor may still be working on, oldest first.
func (s *Store) Unsettled(ctx context.Context, agentID string) ([]operationstore.Outgoing, error) {
	return s.batches.unsettled.Do(ctx, agentID)
}

// CommandState finds the operation of a command and where the command stands; both are empty if there is none.
func (s *Store) CommandState(
	ctx context.Context, commandID string,
) (operationID string, state operation.CommandState, err error) {
	row, err := s.db.Q.GetCommand(ctx, commandID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("read command: %w", err)
	}
	return row.OperationID, operation.CommandState(row.State), nil
}

// CommandPlace finds the operation, step and executor of a command, for its log.
func (s *Store) CommandPlace(ctx context.Context, commandID string) (operationID, step, executorID string, err error) {
	row, err := s.db.Q.GetCommand(ctx, commandID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", "", nil
	}
	if err != nil {
		return "", "", "", fmt.Errorf("read command: %w", err)
	}
	return row.OperationID, row.StepName, row.ExecutorID, nil
}

// SetAgentLocked records whether the agent's local operator has locked it.
func (s *Store) SetAgentLocked(ctx context.Context, agentID string, locked bool) error {
	if err := s.db.Q.SetAgentLocked(ctx, dbsqlc.SetAgentLockedParams{AgentID: agentID, Locked: locked}); err != nil {
		return fmt.Errorf("record lock: %w", err)
	}
	return nil
}

// RenewLease renews a controller's lease until a time.
func (s *Store) RenewLease(ctx context.Context, controllerID, version string, until, now time.Time) error {
	err := s.db.Q.RenewLease(ctx, dbsqlc.RenewLeaseParams{ControllerID: controllerID, Version: version, LeaseUntil: until,
		Now: now})
	if err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	return nil
}

// EndSessionsOf ends the sessions of a controller that stops, or of all whose lease has run out when id is empty.
func (s *Store) EndSessionsOf(ctx context.Context, controllerID string, now time.Time) error {
	if controllerID != "" {
		if err := s.db.Q.EndSessionsOfController(ctx, dbsqlc.EndSessionsOfControllerParams{ControllerID: controllerID,
			Now: &now}); err != nil {
			return fmt.Errorf("end sessions: %w", err)
		}
		return nil
	}
	lost, err := s.db.Q.LostControllers(ctx, now)
	if err != nil {
		return fmt.Errorf("look for lost controllers: %w", err)
	}
	if len(lost) == 0 {
		return nil
	}
	if err := s.db.Q.EndLostSessions(ctx, dbsqlc.EndLostSessionsParams{Now: &now, ControllerIds: lost}); err != nil {
		return fmt.Errorf("end lost sessions: %w", err)
	}
	return nil
}
