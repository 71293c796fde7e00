// Package erasure makes erasure certificates and verifies them: signed statements of the erased disks of a machine, the
// methods, and how the erasure was read back. With the installation's root certificate they can be verified without the
// controller.
package erasure

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// Version is the form of a statement, in its field "version".
const Version = 1

// Statement is the content of a certificate.
type Statement struct {
	Version  int       `json:"version"`
	IssuedAt time.Time `json:"issued_at"`
	IssuedBy string    `json:"issued_by"`
	Machine  Machine   `json:"machine"`
	Work     Work      `json:"operation"`
	Disks    []Disk    `json:"disks"`
	History  History   `json:"history"`
}

// Machine is the one whose disks were erased, as it was registered.
type Machine struct {
	ID         string `json:"id"`
	ExternalID string `json:"external_id,omitempty"`
	Serial     string `json:"serial,omitempty"`
	// Simulated: there is no such machine, and nothing was erased.
	Simulated bool `json:"simulated,omitempty"`
}

// Work is the operation that erased them.
type Work struct {
	ID        string    `json:"id"`
	Type      string    `json:"type"`
	RequestID string    `json:"request_id,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	EndedAt   time.Time `json:"ended_at"`
	// Installer is the agent that erased and read back. IdentityLevel is how it had proven the identity of its machine,
	// and Trust the basis of the level "tpm".
	Installer     string `json:"installer,omitempty"`
	IdentityLevel string `json:"identity_level,omitempty"`
	Trust         string `json:"identity_trust,omitempty"`
}

// Disk is one that was erased.
type Disk struct {
	// ID is the disk's name below /dev/disk/by-id, which has its model and serial number.
	ID string `json:"id"`
	// Method is how it was erased, Verification what was read back afterwards.
	Method       string `json:"method"`
	Verification string `json:"verification"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	// NotUsed has the reason against each better method, Hidden the areas that cannot be addressed, and Notes other facts
	// for the reader.
	NotUsed string `json:"not_used,omitempty"`
	Hidden  string `json:"hidden_areas,omitempty"`
	Notes   string `json:"notes,omitempty"`
}

// History is the machine's timeline when the certificate was issued: its entries were recomputed and found good.
type History struct {
	Entries int64 `json:"entries"`
	// Head is the hash of the last entry, in lower hex.
	Head string `json:"head"`
}

// Errors of evidence that does not make a certificate.
var (
	// ErrNoDisks: no disk is named that was erased and read back by an installer of this installation.
	ErrNoDisks = errors.New("no disk was erased and read back by an installer")
	// ErrIncomplete: a disk is named, and not that it was erased and read back.
	ErrIncomplete = errors.New("not every disk was erased and read back")
)

// Disks reads what an installer has put into the evidence of an operation.
func Disks(proof map[string]string) ([]Disk, error) {
	if proof[evidence.EraseMethod] == "" {
		return nil, ErrNoDisks
	}
	var out []Disk
	for {
		key := evidence.ErasedDisk(len(out))
		id, there := proof[key(evidence.ErasedID)]
		if !there {
			break
		}
		d := Disk{
			ID: id, Method: proof[key(evidence.ErasedMethod)], Verification: proof[key(evidence.ErasedVerification)],
			NotUsed: proof[key(evidence.ErasedNotUsed)], Hidden: proof[key(evidence.ErasedHidden)],
			Notes: proof[key(evidence.ErasedNotes)],
		}
		seconds, err := strconv.ParseFloat(proof[key(evidence.ErasedSeconds)], 64)
		if d.Method == "" || d.Verification == "" || err != nil || proof[key(evidence.ErasedError)] != "" {
			return nil, fmt.Errorf("%w: %s", ErrIncomplete, id)
		}
		d.Seconds = seconds
		out = append(out, d)
	}
	if len(out) == 0 {
		return nil, ErrNoDisks
	}
	return out, nil
}
