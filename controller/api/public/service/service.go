// Package service has what the services of the public API share: their configuration, lists in pages, streams, and the
// start of work.
package service

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/session"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/store/incarnation"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/controller/store/schema"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/clock"
)

// Engine does what must also reach agents and watchers.
type Engine interface {
	Start(ctx context.Context, r operationstore.StartRequest) (*baremetalv1.Operation, error)
	StartWorkflow(ctx context.Context, r workflowstore.WorkflowStart) (*baremetalv1.Operation, error)
	ActOnWorkflow(ctx context.Context, r workflowstore.WorkflowAct) (*baremetalv1.Operation, error)
	Cancel(ctx context.Context, operationID, actor string) (*baremetalv1.Operation, error)
	TransitionNode(ctx context.Context, r nodestore.TransitionRequest) (*baremetalv1.Operation, error)
	ApproveDiscovered(ctx context.Context, r nodestore.ApproveRequest) (*baremetalv1.Operation, error)
	CreateRollout(ctx context.Context, r rolloutstore.RolloutRequest) (*baremetalv1.Rollout, error)
	ActOnRollout(ctx context.Context, a rolloutstore.RolloutAct) (*baremetalv1.Rollout, error)
	Settle(ctx context.Context, machineID, commandID, verdict, actor, comment string) (*baremetalv1.Machine, error)
	RevokeAgent(ctx context.Context, agentID, fingerprint, actor, reason string) error
	// Changed is closed at the next change that this controller commits; call again for the one after.
	Changed() <-chan struct{}
}

// Info is the part of GetServerInfo that is not in the database.
type Info struct {
	Version      string
	ControllerID string
	// RESTAddress is where REST and the console listen; empty where they are off.
	RESTAddress string
}

// Config is what the services work with. Engine, Images, Secrets, Bundle, CA and DocumentSigner are required.
type Config struct {
	Engine Engine
	Images Images
	// Scripts is the catalogue of scripts. Required.
	Scripts Scripts
	// Tokens are the bearer tokens in force; nil where there is no guard.
	Tokens APITokens
	// SignOn returns the settings of sign-ons; nil where they don't.
	SignOn func(ctx context.Context) (*baremetalv1.SignOn, error)
	// Sessions are those of this controller's agents; nil is none.
	Sessions *session.Registry
	// Secrets seals BMC credentials and the secrets of webhooks.
	Secrets *secret.Box
	// WebhookPolicy is the addresses that webhooks may have.
	WebhookPolicy webhook.Policy
	// WebhookSource names this installation in events.
	WebhookSource string
	// Clock is the real one when nil.
	Clock clock.Clock
	Info  Info
	// Bundle makes the one string that carries a bootstrap token to a machine.
	Bundle func(tokenID, secret string, issued time.Time) (string, error)
	// CA issues certificates, and CAGrace is how long after its end a certificate may be traded for a new one.
	CA      *ca.Authority
	CAGrace time.Duration
	// DocumentSigner makes a key for one signature, and its chain with the installation's root.
	DocumentSigner func(ctx context.Context) (crypto.Signer, []*x509.Certificate, error)
	// Incarnation names the database's history; cursors of another one are refused with CURSOR_EXPIRED. Where it is
	// nil every cursor counts as ours.
	Incarnation func(ctx context.Context) (string, error)
	// Draining ends all streams when it is done. It is context.Background() when nil.
	Draining context.Context
	// SendTimeout is how long a stream waits for its reader to take one message; 0 means 30 s.
	SendTimeout time.Duration
	// PollEvery is how often a stream looks without being told; 0 means 250 ms.
	PollEvery time.Duration
	// BookmarkEvery is after how long without a message a watch of machines sends its cursor; 0 means 10 s.
	BookmarkEvery time.Duration
	// LogGrace is how long a log is followed after its operation has ended; 0 means 500 ms.
	LogGrace time.Duration
	// PageRows is the number of events or log chunks that a stream reads at once; 0 means 100.
	PageRows int32
	// MostMapped is how many machines a map has at most; 0 means 250,000.
	MostMapped int32
}

// Base is what every service works with.
type Base struct {
	Config Config
	Engine Engine
	Clock  clock.Clock

	stores Stores
}

// Stores are what Base reads and writes.
type Stores struct {
	DB           *pgtx.DB
	Machines     *machinestore.Store
	Operations   *operationstore.Store
	Credentials  *credentialstore.Store
	Incarnations *incarnation.Store
	Schema       *schema.Store
}

// New fills in the defaults.
func New(c Config, s Stores) *Base {
	if c.Clock == nil {
		c.Clock = clock.Real()
	}
	if c.Draining == nil {
		c.Draining = context.Background()
	}
	if c.Incarnation == nil {
		c.Incarnation = func(context.Context) (string, error) { return "", nil }
	}
	c.SendTimeout = cmp.Or(c.SendTimeout, 30*time.Second)
	c.PollEvery = cmp.Or(c.PollEvery, 250*time.Millisecond)
	c.BookmarkEvery = cmp.Or(c.BookmarkEvery, 10*time.Second)
	c.LogGrace = cmp.Or(c.LogGrace, 500*time.Millisecond)
	c.PageRows = cmp.Or(c.PageRows, 100)
	c.MostMapped = cmp.Or(c.MostMapped, 250_000)
	return &Base{Config: c, Engine: c.Engine, Clock: c.Clock, stores: s}
}

// Actor names the caller in the audit log. Only a server without a guard has calls without one.
func Actor(ctx context.Context) string {
	c, ok := call.Caller(ctx)
	if !ok {
		return "anonymous"
	}
	return c.Name
}

// FirstError is the first of several checks that failed.
func FirstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
