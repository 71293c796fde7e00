package store

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/access"
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

// Config is the address of the database, and the defaults of requests and plans.
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
	FileTokens func() []access.FileToken
	Logger     *slog.Logger
	// Now is the time for what has no time of its own; nil means time.Now.
	Now func() time.Time
	// Tracer watches what is sent to the database; nil for none.
	Tracer pgx.QueryTracer
}

// Store is the controller's database: all aggregates over one pool. It only opens and closes; each user takes the
// aggregates that it needs. It is safe for concurrent use.
type Store struct {
	DB *pgtx.DB

	Access           *accessstore.Store
	Agents           *agentstore.Store
	Approvals        *approvalstore.Store
	Authorities      *authoritystore.Store
	Budgets          *budgetstore.Store
	Catalog          *catalogstore.Store
	Credentials      *credentialstore.Store
	Explain          *explainstore.Store
	History          *history.Store
	Identities       *identitystore.Store
	Incarnations     *incarnation.Store
	Jobs             *jobstore.Store
	Logs             *operationlog.Store
	MachineFeed      *machinestore.Feed
	Machines         *machinestore.Store
	Maps             *machinemap.Store
	NodeStates       *nodestate.Store
	Nodes            *nodestore.Store
	OperationQueries *operationquery.Store
	Operations       *operationstore.Store
	Overview         *overview.Store
	Past             *paststore.Store
	Rollouts         *rolloutstore.Store
	Schema           *schema.Store
	Sessions         *sessionstore.Store
	Sites            *sitestore.Store
	Timelines        *timelinestore.Store
	Views            *viewstore.Store
	Webhooks         *webhookstore.Store
	WorkflowStates   *workflowstate.Store
	Workflows        *workflowstore.Store
}

// New connects. It does not migrate.
func New(ctx context.Context, c Config) (*Store, error) {
	db, err := pgtx.Open(ctx, pgtx.Config{
		URL: c.URL, PoolSize: c.PoolSize, Logger: c.Logger, Now: c.Now, Tracer: c.Tracer,
	})
	if err != nil {
		return nil, err
	}
	s := &Store{
		DB:               db,
		Access:           accessstore.New(db),
		Agents:           agentstore.New(db),
		Authorities:      authoritystore.New(db),
		Approvals:        approvalstore.New(db),
		Budgets:          budgetstore.New(db),
		Credentials:      credentialstore.New(db),
		History:          history.New(db),
		Incarnations:     incarnation.New(db),
		Jobs:             jobstore.New(db),
		Logs:             operationlog.New(db),
		Machines:         machinestore.New(db, c.FileTokens),
		Maps:             machinemap.New(db),
		Schema:           schema.New(db),
		Sessions:         sessionstore.New(db),
		Overview:         overview.New(db),
		Past:             paststore.New(db),
		OperationQueries: operationquery.New(db),
		Timelines:        timelinestore.New(db),
		Views:            viewstore.New(db),
		WorkflowStates:   workflowstate.New(db),
	}
	s.MachineFeed = machinestore.NewFeed(db, s.Machines)
	s.Catalog = catalogstore.New(db, catalogstore.Config{
		StepDefaults: c.StepDefaults, InstallerCmdline: c.InstallerCmdline, DefaultImage: c.DefaultImage,
		Traceparent: c.Traceparent, OpenSeed: c.OpenSeed, OpenArgument: c.OpenArgument,
	})
	s.Identities = identitystore.New(db, s.Machines)
	s.NodeStates = nodestate.New(db, s.Machines)
	s.Operations = operationstore.New(db, s.Machines, s.Incarnations, s.Budgets, s.Catalog)
	s.Sites = sitestore.New(db, s.Catalog)
	s.Workflows = workflowstore.New(db, s.Operations, s.Budgets)
	s.Nodes = nodestore.New(db, s.Machines, s.Catalog, s.Operations, s.Workflows, s.Budgets)
	s.Rollouts = rolloutstore.New(db, s.Machines, s.Budgets, s.Operations, s.Workflows)
	s.Explain = explainstore.New(db, s.Budgets, s.Operations, s.Workflows, s.Nodes)
	s.Webhooks = webhookstore.New(db, s.Machines)
	return s, nil
}

// Close closes the pool. What is under way ends first.
func (s *Store) Close() { s.DB.Close() }
