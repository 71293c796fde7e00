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
}

// Store holds plans, images and scripts. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB

	Defaults         StepDefaults
	DefaultImage     string
	InstallerCmdline string
	// plans that have been used, by their ids.
	plans sync.Map
}

// New returns a store over the database.
func New(db *pgtx.DB, c Config) *Store {
	return &Store{
		db: db, Defaults: orBuiltIn(c.StepDefaults), DefaultImage: c.DefaultImage, InstallerCmdline: c.InstallerCmdline,
	}
}
