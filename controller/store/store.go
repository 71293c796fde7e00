package store

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/auth"
	accessstore "github.com/ingot-metal/ingot/controller/store/access"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	approvalstore "github.com/ingot-metal/ingot/controller/store/approval"
	authoritystore "github.com/ingot-metal/ingot/controller/store/authority"
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	explainstore "github.com/ingot-metal/ingot/controller/store/explain"
	"github.com/ingot-metal/ingot/controller/store/history"
	identitystore "github.com/ingot-metal/ingot/controller/store/identity"
	"github.com/ingot-metal/ingot/controller/store/incarnation"
	jobstore "github.com/ingot-metal/ingot/controller/store/job"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/machinemap"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationlog"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/store/overview"
	paststore "github.com/ingot-metal/ingot/controller/store/past"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/controller/store/schema"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	timelinestore "github.com/ingot-metal/ingot/controller/store/timeline"
	viewstore "github.com/ingot-metal/ingot/controller/store/view"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/controller/store/workflowstate"
)

// Config says how to reach the database, and what requests and plans leave open.
type Config struct {
	// URL is a libpq connection string.
	URL string
	// PoolSize bounds the connections; 0 means 16.
	PoolSize int32
	// StepDefaults fill what a plan leaves open.
	StepDefaults catalogstore.StepDefaults
	// InstallerCmdline is added to the kernel command line of every installer.
	InstallerCmdline string
	// DefaultImage is used where neither a request nor the machine names an image.
	DefaultImage string
	// Traceparent is the place of a command in the trace of its operation; nil: there are no traces.
	Traceparent func(operationID, commandID string) string
	// OpenSeed opens a sealed seed by its id; nil: none is opened.
	OpenSeed func(id string, sealed []byte) ([]byte, error)
	// OpenArgument opens a secret argument of a script; nil: none is opened.
	OpenArgument func(sealed string) (string, error)
	// FileTokens returns the tokens of the token file; nil: there are none.
	FileTokens func() []auth.FileToken
	Logger     *slog.Logger
	// Now is the time for what has no time of its own; nil means time.Now.
	Now func() time.Time
	// Tracer watches what is sent to the database; nil for none.
	Tracer pgx.QueryTracer
}

// The aggregates under names of their own, so that one struct can embed them all.
type (
	accesses       = accessstore.Store
	agents         = agentstore.Store
	approvals      = approvalstore.Store
	authorities    = authoritystore.Store
	budgets        = budgetstore.Store
	catalog        = catalogstore.Store
	credentials    = credentialstore.Store
	explains       = explainstore.Store
	histories      = history.Store
	identities     = identitystore.Store
	incarnations   = incarnation.Store
	jobs           = jobstore.Store
	logs           = operationlog.Store
	machines       = machinestore.Store
	maps           = machinemap.Store
	migrations     = schema.Store
	nodes          = nodestore.Store
	nodestates     = nodestate.Store
	operations     = operationstore.Store
	pasts          = paststore.Store
	queries        = operationquery.Store
	overviews      = overview.Store
	rollouts       = rolloutstore.Store
	sessions       = sessionstore.Store
	sites          = sitestore.Store
	timelines      = timelinestore.Store
	views          = viewstore.Store
	webhooks       = webhookstore.Store
	workflows      = workflowstore.Store
	workflowstates = workflowstate.Store
)

// Store is the controller's database: all aggregates over one pool. It is safe for concurrent use.
type Store struct {
	*pgtx.DB
	*accesses
	*agents
	*approvals
	*authorities
	*budgets
	*catalog
	*credentials
	*explains
	*histories
	*identities
	*incarnations
	*jobs
	*logs
	*machines
	*maps
	*migrations
	*nodes
	*nodestates
	*operations
	*pasts
	*queries
	*overviews
	*rollouts
	*sessions
	*sites
	*timelines
	*views
	*webhooks
	*workflows
	*workflowstates
}

var _ auth.Source = (*Store)(nil)

// New connects. It does not migrate.
func New(ctx context.Context, c Config) (*Store, error) {
	db, err := pgtx.Open(ctx, pgtx.Config{
		URL: c.URL, PoolSize: c.PoolSize, Logger: c.Logger, Now: c.Now, Tracer: c.Tracer,
	})
	if err != nil {
		return nil, err
	}
	s := &Store{
		DB:             db,
		accesses:       accessstore.New(db),
		agents:         agentstore.New(db),
		authorities:    authoritystore.New(db),
		approvals:      approvalstore.New(db),
		budgets:        budgetstore.New(db),
		credentials:    credentialstore.New(db),
		histories:      history.New(db),
		incarnations:   incarnation.New(db),
		jobs:           jobstore.New(db),
		logs:           operationlog.New(db),
		machines:       machinestore.New(db, c.FileTokens),
		maps:           machinemap.New(db),
		migrations:     schema.New(db),
		sessions:       sessionstore.New(db),
		overviews:      overview.New(db),
		pasts:          paststore.New(db),
		queries:        operationquery.New(db),
		timelines:      timelinestore.New(db),
		views:          viewstore.New(db),
		workflowstates: workflowstate.New(db),
	}
	s.catalog = catalogstore.New(db, catalogstore.Config{
		StepDefaults: c.StepDefaults, InstallerCmdline: c.InstallerCmdline, DefaultImage: c.DefaultImage,
		Traceparent: c.Traceparent, OpenSeed: c.OpenSeed, OpenArgument: c.OpenArgument,
	})
	s.identities = identitystore.New(db, s.machines)
	s.nodestates = nodestate.New(db, s.machines)
	s.operations = operationstore.New(db, s.machines, s.incarnations, s.budgets, s.catalog, callerOf)
	s.sites = sitestore.New(db, s.catalog)
	s.workflows = workflowstore.New(db, s.operations, s.budgets)
	s.nodes = nodestore.New(db, s.machines, s.catalog, s.operations, s.workflows, s.budgets)
	s.rollouts = rolloutstore.New(db, s.machines, s.budgets, s.operations, s.workflows)
	s.explains = explainstore.New(db, s.budgets, s.operations, s.workflows, s.nodes)
	s.webhooks = webhookstore.New(db, s.machines)
	return s, nil
}
