// Package catalog stores what clients choose from: plans, images and scripts.
package catalog

import (
	"sync"

	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Config holds the defaults of what requests and plans leave open.
type Config struct {
	// StepDefaults fill what a plan leaves open.
	StepDefaults StepDefaults
	// InstallerCmdline is added to the kernel command line of every installer.
	InstallerCmdline string
	// DefaultImage is used where neither a request nor the machine names an image.
	DefaultImage string
	// Traceparent is the place of a command in the trace of its operation, for its agent; empty where there is no trace.
	// nil: there is none of any.
	Traceparent func(operationID, commandID string) string
	// OpenSeed opens a new system's seed, which is stored sealed under an id; nil: nothing is opened.
	OpenSeed func(id string, sealed []byte) ([]byte, error)
	// OpenArgument opens a secret argument of a script; nil: none is opened.
	OpenArgument func(sealed string) (string, error)
}

// Store holds plans, images and scripts. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB

	Defaults         StepDefaults
	DefaultImage     string
	InstallerCmdline string
	Traceparent      func(operationID, commandID string) string
	OpenSeed         func(id string, sealed []byte) ([]byte, error)
	OpenArgument     func(sealed string) (string, error)
	// plans that have been used, by their ids.
	plans sync.Map
}

// New returns a store over the database.
func New(db *pgtx.DB, c Config) *Store {
	s := &Store{
		db: db, Defaults: orBuiltIn(c.StepDefaults), DefaultImage: c.DefaultImage, InstallerCmdline: c.InstallerCmdline,
		Traceparent: c.Traceparent, OpenSeed: c.OpenSeed, OpenArgument: c.OpenArgument,
	}
	if s.Traceparent == nil {
		s.Traceparent = func(string, string) string { return "" }
	}
	return s
}
