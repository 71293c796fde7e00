// Package support names the parts of a controller's support bundle that come from its database. Each part lists what it
// shows field by field, so that what is added to a message later is not in a bundle by itself.
package support

import (
	"context"
	"errors"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/store/overview"
	"github.com/ingot-metal/ingot/controller/store/schema"
	"github.com/ingot-metal/ingot/internal/supportbundle"
)

// Bounds of what is listed.
const (
	maxAgents, maxSites, maxControllers = 5000, 1000, 100
	maxFailed, maxEvents                = 25, 200
)

// errAway is the reason of every part once the database was found away, so that none waits for it again.
var errAway = errors.New("the database does not answer")

// Database are the parts. open gives the store, or says why there is none.
func Database(open func(ctx context.Context) (*store.Store, error)) []supportbundle.Part {
	d := &database{open: open}
	return []supportbundle.Part{
		supportbundle.JSON("database/schema.json", with(d, schemaState)),
		supportbundle.JSON("database/freeze.json", with(d, freeze)),
		supportbundle.JSON("database/counts.json", with(d, counts)),
		supportbundle.JSON("database/queues.json", with(d, queues)),
		supportbundle.JSON("database/controllers.json", with(d, controllers)),
		supportbundle.JSON("database/authority.json", with(d, authority)),
		supportbundle.JSON("database/sites.json", with(d, sites)),
		supportbundle.JSON("database/agents.json", with(d, agents)),
		supportbundle.JSON("database/failed-operations.json", with(d, failed)),
	}
}

// database opens the store once.
type database struct {
	open  func(ctx context.Context) (*store.Store, error)
	store *store.Store
	err   error
}

func with[T any](d *database, get func(context.Context, *store.Store) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (out T, err error) {
		if d.store == nil && d.err == nil {
			if d.store, d.err = d.open(ctx); d.err == nil {
				d.err = d.store.DB.Ping(ctx)
			}
			if d.err != nil {
				err, d.err = d.err, errAway
				return out, err
			}
		}
		if d.err != nil {
			return out, d.err
		}
		return get(ctx, d.store)
	}
}

type schemaPart struct {
	Version  int             `json:"version"`
	Knows    int             `json:"program_knows"`
	River    []int32         `json:"river_migrations"`
	Settings schema.Settings `json:"postgres"`
}

func schemaState(ctx context.Context, s *store.Store) (out schemaPart, err error) {
	if out.Version, err = s.Schema.SchemaVersion(ctx); err != nil {
		return out, err
	}
	if out.Knows, err = schema.Newest(); err != nil {
		return out, err
	}
	if out.Settings, err = s.Schema.Settings(ctx); err != nil {
		return out, err
	}
	out.River, err = s.Overview.RiverMigrations(ctx)
	return out, err
}

type freezePart struct {
	Since   time.Time `json:"since,omitzero"`
	NotSeen int32     `json:"agents_not_seen"`
	Reason  string    `json:"reason"`
	Cause   string    `json:"cause"`
}

func freeze(ctx context.Context, s *store.Store) (out freezePart, err error) {
	if out.Since, out.NotSeen, err = s.Incarnations.Frozen(ctx); err != nil || out.Since.IsZero() {
		return out, err
	}
	why, err := s.Incarnations.WhyFrozen(ctx)
	if err == nil && why.Active() {
		out.Reason, out.Cause = why.Reason(), why.Cause()
	}
	return out, err
}

type countsPart struct {
	Machines   map[string]int   `json:"machines_by_effective_state"`
	Operations []overview.Tally `json:"operations_of_7_days"`
	Commands   []overview.Tally `json:"commands_of_7_days"`
	Tables     []overview.Tally `json:"largest_tables_rows_about"`
}

func counts(ctx context.Context, s *store.Store) (out countsPart, err error) {
	machines, err := s.Machines.CountMachines(ctx)
	if err != nil {
		return out, err
	}
	out.Machines = map[string]int{}
	for k, n := range machines {
		out.Machines[k.Effective] += n
	}
	if out.Operations, err = s.Overview.TallyOperations(ctx); err != nil {
		return out, err
	}
	if out.Commands, err = s.Overview.TallyCommands(ctx); err != nil {
		return out, err
	}
	out.Tables, err = s.Overview.TallyTables(ctx)
	return out, err
}

func queues(ctx context.Context, s *store.Store) ([]overview.Tally, error) {
	return s.Overview.TallyJobs(ctx)
}

type controllerPart struct {
	ID       string    `json:"controller_id"`
	Hostname string    `json:"hostname"`
	Version  string    `json:"version"`
	State    string    `json:"state"`
	Sessions int64     `json:"sessions"`
	Leads    bool      `json:"leads"`
	Started  time.Time `json:"started_at"`
	Lease    time.Time `json:"lease_until"`
}

func controllers(ctx context.Context, s *store.Store) (out []controllerPart, err error) {
	now, err := s.Sessions.Time(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.Sessions.ListControllers(ctx, true, "", maxControllers, now)
	for _, k := range all {
		out = append(out, controllerPart{k.GetControllerId(), k.GetHostname(), k.GetVersion(), k.GetState().String(),
			k.GetSessions(), k.GetLeads(), k.GetStartedAt().AsTime(), k.GetLeaseUntil().AsTime()})
	}
	return out, err
}

type generationPart struct {
	Generation int       `json:"generation"`
	Created    time.Time `json:"created_at"`
	Withdrawn  time.Time `json:"withdrawn_at,omitzero"`
}

// authority is empty where the CA was never rotated.
func authority(ctx context.Context, s *store.Store) (out []generationPart, err error) {
	all, err := s.Authorities.Authorities(ctx)
	for _, g := range all {
		out = append(out, generationPart{g.Number, g.Created, g.Withdrawn})
	}
	return out, err
}

type sitePart struct {
	Site     string        `json:"site"`
	Segments []segmentPart `json:"segments"`
}

type segmentPart struct {
	Name string `json:"name"`
	Used int32  `json:"pool_used"`
	Size int32  `json:"pool_size"`
}

func sites(ctx context.Context, s *store.Store) (out []sitePart, err error) {
	all, err := s.Sites.ListSites(ctx, "", maxSites)
	for _, site := range all {
		p := sitePart{Site: site.GetSite()}
		for _, g := range site.GetSegments() {
			p.Segments = append(p.Segments, segmentPart{g.GetName(), g.GetPoolUsed(), g.GetPoolSize()})
		}
		out = append(out, p)
	}
	return out, err
}

type agentPart struct {
	ID           string    `json:"agent_id"`
	Role         string    `json:"role"`
	Machine      string    `json:"machine_id,omitempty"`
	Site         string    `json:"site,omitempty"`
	Version      string    `json:"version"`
	Connected    bool      `json:"connected"`
	Simulated    bool      `json:"simulated,omitempty"`
	Locked       bool      `json:"locked,omitempty"`
	Capabilities []string  `json:"capabilities"`
	Heard        time.Time `json:"last_heartbeat_at,omitzero"`
	CertEnds     time.Time `json:"certificate_ends_at,omitzero"`
}

func agents(ctx context.Context, s *store.Store) (out []agentPart, err error) {
	all, err := s.Agents.ListAgents(ctx, agentstore.AgentFilter{Limit: maxAgents})
	for _, a := range all {
		p := agentPart{ID: a.GetAgentId(), Role: a.GetRole().String(), Machine: a.GetMachineId(), Site: a.GetSite(),
			Version: a.GetVersion(), Connected: a.GetConnected(), Simulated: a.GetSimulated(), Locked: a.GetLockedReason() != "",
			Capabilities: a.GetCapabilities()}
		if a.GetLastHeartbeatAt() != nil {
			p.Heard = a.GetLastHeartbeatAt().AsTime()
		}
		if len(a.GetCerts()) > 0 {
			p.CertEnds = a.GetCerts()[0].GetNotAfter().AsTime()
		}
		out = append(out, p)
	}
	return out, err
}

type operationPart struct {
	ID       string      `json:"operation_id"`
	Machine  string      `json:"machine_id"`
	Type     string      `json:"type"`
	Phase    string      `json:"phase"`
	Stage    string      `json:"stage"`
	Code     string      `json:"code"`
	Created  time.Time   `json:"created_at"`
	Finished time.Time   `json:"finished_at,omitzero"`
	Commands []stepPart  `json:"commands"`
	Timeline []eventPart `json:"timeline"`
}

type stepPart struct {
	Step    string    `json:"step"`
	Kind    string    `json:"kind"`
	Attempt int32     `json:"attempt"`
	State   string    `json:"state"`
	Outcome string    `json:"outcome"`
	Sent    time.Time `json:"sent_at,omitzero"`
	Ended   time.Time `json:"finished_at,omitzero"`
}

type eventPart struct {
	At    time.Time `json:"at"`
	Kind  string    `json:"kind"`
	Step  string    `json:"step,omitempty"`
	Phase string    `json:"phase"`
	Code  string    `json:"code,omitempty"`
}

// failed are the last operations that failed, without parameters and free text: what a script or a BMC has printed may
// hold anything.
func failed(ctx context.Context, s *store.Store) (out []operationPart, err error) {
	all, err := s.OperationQueries.ListOperations(ctx,
		operationquery.OperationFilter{Phase: baremetalv1.Operation_FAILED.String(), Limit: maxFailed})
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		p := operationPart{ID: o.GetOperationId(), Machine: o.GetMachineId(), Type: o.GetType().String(),
			Phase: o.GetPhase().String(), Stage: o.GetCurrentStage(), Code: o.GetError().GetCode(),
			Created: o.GetCreatedAt().AsTime()}
		if o.GetFinishedAt() != nil {
			p.Finished = o.GetFinishedAt().AsTime()
		}
		if p.Commands, err = commandsOf(ctx, s, o.GetOperationId()); err != nil {
			return out, err
		}
		events, err := s.Logs.EventsOf(ctx, o.GetOperationId(), 0, maxEvents)
		if err != nil {
			return out, err
		}
		for _, e := range events {
			p.Timeline = append(p.Timeline, eventPart{e.TS, e.Kind, e.Step, e.Snapshot.GetPhase().String(),
				e.Snapshot.GetError().GetCode()})
		}
		out = append(out, p)
	}
	return out, nil
}

func commandsOf(ctx context.Context, s *store.Store, operationID string) (out []stepPart, err error) {
	all, err := s.OperationQueries.ListCommands(ctx, operationquery.CommandFilter{OperationID: operationID,
		Limit: maxEvents})
	for _, k := range all {
		p := stepPart{Step: k.GetStep(), Kind: k.GetKind(), Attempt: k.GetAttempt(), State: k.GetState(),
			Outcome: k.GetOutcome()}
		if k.GetSentAt() != nil {
			p.Sent = k.GetSentAt().AsTime()
		}
		if k.GetFinishedAt() != nil {
			p.Ended = k.GetFinishedAt().AsTime()
		}
		out = append(out, p)
	}
	return out, err
}
