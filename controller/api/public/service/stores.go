package service

import (
	"context"
	"io"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/identity"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/domain/savedview"
	"github.com/ingot-metal/ingot/controller/domain/timeline"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	authoritystore "github.com/ingot-metal/ingot/controller/store/authority"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/machinemap"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationlog"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	timelinestore "github.com/ingot-metal/ingot/controller/store/timeline"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

// Store is what the services read and write; *store.Store is one.
type Store interface {
	Machines
	Past
	History
	Operations
	Explainer
	Plans
	Admin
	Catalogue
	ScriptEntries
	Clusters
	MAASRegions
	Budgets
	Rollouts
	Sites
	Workflows
	Nodes
	Webhooks
	Access
	Authorities
	Views
	// Count counts the rows of lists instead of reading them.
	Count(ctx context.Context, read func(context.Context) error) (rows int64, known bool, err error)
}

var _ Store = (*store.Store)(nil)

// Views are lists of machines that are saved.
type Views interface {
	SetView(ctx context.Context, who savedview.Caller, v savedview.View, now time.Time,
		opts ...pgtx.WriteOption) (savedview.View, error)
	GetView(ctx context.Context, who savedview.Caller, name string) (savedview.View, error)
	ListViews(ctx context.Context, who savedview.Caller, after string, limit int32) ([]savedview.View, error)
	DeleteView(ctx context.Context, who savedview.Caller, name string, now time.Time,
		opts ...pgtx.WriteOption) (savedview.View, error)
}

// Authorities are the generations of the CA.
type Authorities interface {
	Authorities(ctx context.Context) ([]authoritystore.Generation, error)
	RotateAuthority(ctx context.Context, before []authoritystore.Generation, next authoritystore.Generation, actor,
		comment string, now time.Time) error
	WithdrawAuthority(ctx context.Context, w authoritystore.Withdrawal, now time.Time) error
	Holders(ctx context.Context, newest int, expiredBefore, now time.Time) ([]*baremetalv1.Authority_Holder, int32, error)
}

// Access is the roles and sessions of people.
type Access interface {
	CreateRoleBinding(ctx context.Context, b auth.RoleBinding, actor string, now time.Time) (*baremetalv1.RoleBinding,
		error)
	ListRoleBindings(ctx context.Context, beforeID string, limit int32) ([]*baremetalv1.RoleBinding, error)
	DeleteRoleBinding(ctx context.Context, id, actor string, now time.Time) (*baremetalv1.RoleBinding, error)
	ListSessions(ctx context.Context, all bool, beforeTime time.Time, beforeID string, limit int32,
		now time.Time) ([]*baremetalv1.Session, error)
	RevokeSession(ctx context.Context, id, actor string, now time.Time) (*baremetalv1.Session, error)
}

// Machines is the inventory.
type Machines interface {
	Register(ctx context.Context, m *baremetalv1.Machine, actor string, now time.Time,
		opts ...pgtx.WriteOption) (*baremetalv1.Machine, error)
	Update(ctx context.Context, m *baremetalv1.Machine, actor string, now time.Time,
		opts ...pgtx.WriteOption) (*baremetalv1.Machine, error)
	Delete(ctx context.Context, id, actor string, purge bool, now time.Time,
		opts ...pgtx.WriteOption) (*baremetalv1.Machine, error)
	GetMachine(ctx context.Context, id, externalID string) (*baremetalv1.Machine, error)
	KnownMachine(ctx context.Context, id string) (*baremetalv1.Machine, error)
	WalkMachines(ctx context.Context, f machinestore.MachineFilter) ([]*baremetalv1.Machine, error)
	WalkInOrder(ctx context.Context, filters []machinestore.MachineFilter, order machinestore.Order, afterID string,
		after machinestore.Place, limit int32) ([]*baremetalv1.Machine, error)
	AnythingUnknown(ctx context.Context) (bool, error)
	CountAlike(ctx context.Context, c machinestore.Counter) (groups []machinestore.Counted, asOf time.Time, err error)
	MapMachines(ctx context.Context, c machinestore.Counter) (all []machinemap.Part, asOf time.Time, err error)
	ReconcileSealed(ctx context.Context, from string, since time.Time, limit int32) (*machinestore.Changes, error)
	Follow(ctx context.Context, from string, limit int32) (all []machinestore.Change, next string, more bool, err error)
	Narrowed(in machinefilter.Selections) *machinestore.Narrowed
	InSelections(ctx context.Context, in machinefilter.Selections, ids []string) (map[string]bool, error)
	CheckCursor(ctx context.Context, cursor string) error
	HeadCursor(ctx context.Context) (next string, safeSince time.Time, err error)
	GetInventory(ctx context.Context, machineID string, before int32) (*baremetalv1.Inventory, error)
	GetHardwareTests(ctx context.Context, machineID string, howMany int32) (*baremetalv1.HardwareTests, error)
	GetHardwareHealth(ctx context.Context, machineID string) (*baremetalv1.HardwareHealth, error)
	SetIdentifyLight(ctx context.Context, machineID string, lit bool, actor string, now time.Time) (
		*baremetalv1.HardwareHealth, error)
	NodeHistory(ctx context.Context, machineID string, limit, offset int32) ([]*baremetalv1.NodeStateLog, int32, error)
}

// Past is machines as they were.
type Past interface {
	MachinesAt(ctx context.Context, moment time.Time, afterID string, limit int32) ([]*baremetalv1.Machine, error)
	MachineAt(ctx context.Context, id string, moment time.Time) (*baremetalv1.Machine, error)
	MapMachinesAt(ctx context.Context, c machinestore.Counter, moment time.Time) ([]machinemap.Part, error)
	StatesSince(ctx context.Context) (time.Time, error)
}

// Workflows are onboardings and decommissions.
type Workflows interface {
	GetWorkflow(ctx context.Context, id string) (*baremetalv1.Workflow, error)
	ListWorkflows(ctx context.Context, f workflowstore.WorkflowFilter) ([]*baremetalv1.Workflow, error)
}

// Operations is the work, as it is and as it was.
type Operations interface {
	ValidateStart(ctx context.Context, r operationstore.StartRequest) (*baremetalv1.Operation, operationstore.Fit, error)
	GetOperation(ctx context.Context, id string) (*baremetalv1.Operation, error)
	ListOperations(ctx context.Context, f operationquery.OperationFilter) ([]*baremetalv1.Operation, error)
	CountWork(ctx context.Context, since time.Time) (operationquery.Work, error)
	GetRun(ctx context.Context, id string) (*baremetalv1.Run, error)
	ListRuns(ctx context.Context, f operationquery.OperationFilter) ([]*baremetalv1.Run, error)
	FeedHead(ctx context.Context) (operationlog.FeedPos, error)
	Feed(ctx context.Context, after operationlog.FeedPos, limit int32) ([]operationlog.Event, error)
	EventsOf(ctx context.Context, operationID string, after int64, limit int32) ([]operationlog.Event, error)
	LogsOf(ctx context.Context, operationID string, after int64, limit int32) ([]*baremetalv1.LogChunk, error)
	ListCommands(ctx context.Context, f operationquery.CommandFilter) ([]*baremetalv1.Command, error)
}

// Plans are the recipes.
type Plans interface {
	CreatePlan(ctx context.Context, p *baremetalv1.Plan, actor string, now time.Time,
		opts ...pgtx.WriteOption) (*baremetalv1.Plan, error)
	DeletePlan(ctx context.Context, id, actor string, now time.Time, opts ...pgtx.WriteOption) (*baremetalv1.Plan, error)
	GetPlan(ctx context.Context, id string) (*baremetalv1.Plan, error)
	ListPlans(ctx context.Context, after catalogstore.PlanPosition, limit int32) ([]*baremetalv1.Plan, error)
}

// Admin is tokens, agents, flags and the audit log.
type Admin interface {
	IssueToken(ctx context.Context, t agentstore.NewToken, now time.Time) (*baremetalv1.BootstrapToken, error)
	ListTokens(ctx context.Context, beforeTime time.Time, beforeID string, limit int32) ([]*baremetalv1.BootstrapToken,
		error)
	RevokeToken(ctx context.Context, tokenID, actor string, now time.Time) (*baremetalv1.BootstrapToken, error)
	ListAgents(ctx context.Context, f agentstore.AgentFilter) ([]*baremetalv1.Agent, error)
	ListControllers(ctx context.Context, all bool, beforeID string, limit int32, now time.Time) ([]*baremetalv1.Controller,
		error)
	GetAgent(ctx context.Context, id string) (*baremetalv1.Agent, error)
	RequireIdentity(ctx context.Context, site, group string, level identity.Level, actor, comment string,
		now time.Time) error
	ForgetTPM(ctx context.Context, machineID, actor, comment string, now time.Time) (*baremetalv1.Machine, error)
	ClearIntervention(ctx context.Context, machineID, actor, comment string, now time.Time) (*baremetalv1.Machine, error)
	SetFlag(ctx context.Context, machineID, flag string, value bool, actor, comment string, now time.Time,
		opts ...pgtx.WriteOption) (*baremetalv1.Machine, error)
	CreateAPIToken(ctx context.Context, t credentialstore.NewAPIToken, now time.Time) (*baremetalv1.APIToken, error)
	RevokeAPIToken(ctx context.Context, id, actor string, now time.Time) (*baremetalv1.APIToken, error)
	ListAPITokens(ctx context.Context, all bool, beforeID string, limit int32, now time.Time) ([]*baremetalv1.APIToken,
		error)
	ListAudit(ctx context.Context, f history.AuditFilter) ([]*baremetalv1.AuditEntry, error)
	ScrubAudit(ctx context.Context, targetID, actor string, now time.Time) (int64, error)
	SchemaVersion(ctx context.Context) (int, error)
	Frozen(ctx context.Context) (since time.Time, notSeen int32, err error)
	Listening(ctx context.Context) (fleet.Listening, error)
	AgentsAwaited(ctx context.Context, within time.Duration) (int32, error)
	WhyFrozen(ctx context.Context) (fleet.Freeze, error)
	Thaw(ctx context.Context, actor, comment string, now time.Time) error
}

// Catalogue is the images.
type Catalogue interface {
	GetImage(ctx context.Context, ref string) (*baremetalv1.Image, error)
	ListImages(ctx context.Context, f catalogstore.ImageFilter) ([]*baremetalv1.Image, error)
}

// Sites are what site agents serve, what they have seen, and what they log in to BMCs with.
type Sites interface {
	SetSite(ctx context.Context, site string, segments []*baremetalv1.Segment, threshold, actor string, now time.Time,
		opts ...pgtx.WriteOption) (*baremetalv1.Site, error)
	GetSite(ctx context.Context, site string) (*baremetalv1.Site, error)
	ListSites(ctx context.Context, after string, limit int32) ([]*baremetalv1.Site, error)
	ListSiteLeases(ctx context.Context, f sitestore.LeaseFilter) ([]*baremetalv1.SiteLease, error)
	ListDiscovered(ctx context.Context, f sitestore.DiscoveredFilter) ([]*baremetalv1.DiscoveredMachine, error)
	SetCredentials(ctx context.Context, c credentialstore.CredentialsChange, actor string, now time.Time,
		opts ...pgtx.WriteOption) (credentialstore.SealedCredentials, error)
	ListBMCCertificates(ctx context.Context, f credentialstore.BMCCertificateFilter) ([]*baremetalv1.BMCCertificate, error)
	TrustBMCCertificate(ctx context.Context, machineID, sum, actor, comment string,
		now time.Time) (*baremetalv1.BMCCertificate, error)
	UnparkBMC(ctx context.Context, machineID, actor, comment string, now time.Time) (*baremetalv1.UnparkBMCResponse, error)
	CredentialsForDiscovery(ctx context.Context, d credentialstore.Discovery, now time.Time,
	) (credentialstore.SealedCredentials, error)
	KnownHardware(ctx context.Context, site string, macs []string) ([]machinestore.Hardware, error)
	ListCredentials(ctx context.Context, afterRef string, limit int32) ([]credentialstore.SealedCredentials, error)
	DeleteCredentials(ctx context.Context, ref, actor string, now time.Time,
		opts ...pgtx.WriteOption) (credentialstore.SealedCredentials, error)
}

// Clusters are what machines join.
type Clusters interface {
	SetCluster(ctx context.Context, c credentialstore.SealedCluster, actor string, now time.Time,
		opts ...pgtx.WriteOption) (credentialstore.SealedCluster, error)
	GetCluster(ctx context.Context, ref string) (credentialstore.SealedCluster, error)
	ListClusters(ctx context.Context, afterRef string, limit int32) ([]credentialstore.SealedCluster, error)
	DeleteCluster(ctx context.Context, ref, actor string, now time.Time,
		opts ...pgtx.WriteOption) (credentialstore.SealedCluster, error)
}

// ScriptEntries are the catalogue of scripts, and what machines are logged in to with.
type ScriptEntries interface {
	GetScript(ctx context.Context, ref string) (*baremetalv1.Script, error)
	ListScripts(ctx context.Context, afterRef string, limit int32) ([]*baremetalv1.Script, error)
	PutSystemSeed(ctx context.Context, id string, sealed []byte, now time.Time) error
	SetSSHCredentials(ctx context.Context, ref string, sealed []byte, actor string, now time.Time,
		opts ...pgtx.WriteOption) (credentialstore.SealedCredentials, error)
	ListSSHCredentials(ctx context.Context, afterRef string, limit int32) ([]credentialstore.SealedCredentials, error)
	DeleteSSHCredentials(ctx context.Context, ref, actor string, now time.Time,
		opts ...pgtx.WriteOption) (credentialstore.SealedCredentials, error)
}

// Budgets bound how many machines may be lost at a time, and stop the fleet.
type Budgets interface {
	SetApprovalPolicy(ctx context.Context, p *baremetalv1.ApprovalPolicy, in machinefilter.Selections, actor string,
		now time.Time, opts ...pgtx.WriteOption) (*baremetalv1.ApprovalPolicy, error)
	ListApprovalPolicies(ctx context.Context, after string, limit int32) ([]*baremetalv1.ApprovalPolicy, error)
	DeleteApprovalPolicy(ctx context.Context, name, actor string, now time.Time, opts ...pgtx.WriteOption) (
		*baremetalv1.ApprovalPolicy, error)
	SetBudget(ctx context.Context, b *baremetalv1.Budget, actor string, now time.Time,
		opts ...pgtx.WriteOption) (*baremetalv1.Budget, error)
	ListBudgets(ctx context.Context, after string, limit int32) ([]*baremetalv1.Budget, error)
	DeleteBudget(ctx context.Context, name, actor string, now time.Time, opts ...pgtx.WriteOption) (*baremetalv1.Budget,
		error)
	HeldSlots(ctx context.Context, afterTaken time.Time, afterID string, limit int32) ([]*baremetalv1.BudgetSlot, error)
	ReleaseSlot(ctx context.Context, machineID, actor, comment string, now time.Time) (*baremetalv1.BudgetSlot, error)
	Freeze(ctx context.Context, actor, comment string, now time.Time) error
}

// Rollouts are one piece of work on many machines.
type Rollouts interface {
	ValidateRollout(ctx context.Context, r rolloutstore.RolloutRequest, now time.Time) (*baremetalv1.Rollout, error)
	PreviewRollout(ctx context.Context, r rolloutstore.RolloutRequest, now time.Time) (*baremetalv1.RolloutPreview, error)
	GetRollout(ctx context.Context, id string) (*baremetalv1.Rollout, error)
	ListRollouts(ctx context.Context, f rolloutstore.RolloutFilter) ([]*baremetalv1.Rollout, error)
	WhoseRollout(ctx context.Context, id string) (identity string, all, left []string, err error)
	ListRolloutMachines(ctx context.Context, f rolloutstore.RolloutMachineFilter) ([]*baremetalv1.RolloutMachine, []int32,
		error)
	CreateSelection(ctx context.Context, r rolloutstore.SelectionRequest, now time.Time) (*baremetalv1.Selection, error)
	GetSelection(ctx context.Context, id string, now time.Time) (*baremetalv1.Selection, error)
}

// Explainer gathers what explanations are made of.
type Explainer interface {
	ExplainFacts(ctx context.Context, machineID, operationID string, now time.Time) (explain.Facts, error)
	ExplainFactsOf(ctx context.Context, machineIDs []string, now time.Time) ([]explain.Facts, error)
	StepNormals(ctx context.Context) (explain.Baselines, error)
}

// History is what happened to machines, as chains of hashes.
type History interface {
	Timeline(ctx context.Context, f timelinestore.TimelineQuery) ([]*baremetalv1.TimelineEntry, error)
	StateAt(ctx context.Context, machineID string, at time.Time) (*timeline.State, error)
	HistoryOwners(ctx context.Context, after string, limit int32) (owners []string, total int64, err error)
	VerifyTimeline(ctx context.Context, machineID string) (*baremetalv1.TimelineVerdict, error)
	Present(ctx context.Context, heads []timeline.Head) ([]timeline.Present, error)
}

// Images takes images into the catalogue and out of it; *image.Catalogue does.
type Images interface {
	Add(ctx context.Context, im *baremetalv1.Image, actor string) (*baremetalv1.Image, error)
	Upload(ctx context.Context, im *baremetalv1.Image, r io.Reader, actor string) (*baremetalv1.Image, error)
	Remove(ctx context.Context, ref, actor string) (*baremetalv1.Image, error)
}

// APITokens are the bearer tokens in force on this controller.
type APITokens interface {
	OfFile() []auth.FileToken
	// Refresh makes a change of the database's tokens count on this controller at once.
	Refresh()
}

// Scripts takes scripts into the catalogue and out of it; *script.Catalogue does.
type Scripts interface {
	Add(ctx context.Context, s *baremetalv1.Script, content []byte, actor string) (*baremetalv1.Script, error)
	Remove(ctx context.Context, ref, actor string) (*baremetalv1.Script, error)
}

// MAASRegions are the MAAS installations that drive machines.
type MAASRegions interface {
	SetMAASRegion(ctx context.Context, m credentialstore.MAASRegion, actor string, now time.Time,
		opts ...pgtx.WriteOption) (credentialstore.MAASRegion, error)
	ListMAASRegions(ctx context.Context, afterRef string, limit int32) ([]credentialstore.MAASRegion, error)
	DeleteMAASRegion(ctx context.Context, ref, actor string, now time.Time,
		opts ...pgtx.WriteOption) (credentialstore.MAASRegion, error)
}

// Nodes is the life of machines in the inventory.
type Nodes interface {
	GetNode(ctx context.Context, id string) (*baremetalv1.Node, error)
	Nodes(ctx context.Context, machines []*baremetalv1.Machine) ([]*baremetalv1.Node, error)
	UpdateNode(ctx context.Context, id string, u nodestore.NodeUpdate, actor string, now time.Time,
		opts ...pgtx.WriteOption) (*baremetalv1.Node, error)
	ReportNode(ctx context.Context, r *baremetalv1.ReportNodeRequest, actor string, now time.Time) (*baremetalv1.Node,
		error)
	SetNodeGroup(ctx context.Context, r *baremetalv1.SetNodeGroupRequest, actor string, now time.Time,
		opts ...pgtx.WriteOption) (*baremetalv1.NodeGroup, error)
	ListNodeGroups(ctx context.Context, after string, limit int32) ([]*baremetalv1.NodeGroup, error)
	MachineOfMAC(ctx context.Context, mac string) (string, error)
}

// Webhooks are who is told of events, and what became of it.
type Webhooks interface {
	CreateWebhook(ctx context.Context, w webhookstore.WebhookSpec, sec webhookstore.SealedSecret, actor string,
		now time.Time) (out *baremetalv1.Webhook, created bool, err error)
	GetWebhook(ctx context.Context, id string, now time.Time) (*baremetalv1.Webhook, error)
	ListWebhooks(ctx context.Context, afterID string, limit int32, now time.Time) ([]*baremetalv1.Webhook, error)
	UpdateWebhook(ctx context.Context, id string, c webhookstore.WebhookChange, actor string, now time.Time,
		opts ...pgtx.WriteOption) (*baremetalv1.Webhook, error)
	DeleteWebhook(ctx context.Context, id, actor string, now time.Time, opts ...pgtx.WriteOption) (*baremetalv1.Webhook,
		error)
	PingWebhook(ctx context.Context, webhookID, source, actor string, now time.Time) (*baremetalv1.WebhookDelivery, error)
	ListDeliveries(ctx context.Context, f webhookstore.DeliveryFilter) ([]*baremetalv1.WebhookDelivery, error)
	Redeliver(ctx context.Context, id, actor string, now time.Time) (*baremetalv1.WebhookDelivery, error)
}
