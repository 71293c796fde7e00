package pgtx

import (
	"errors"
	"fmt"

	"github.com/ingot-metal/ingot/internal/failure"
)

// WriteOption is a condition that a client puts on a write.
type WriteOption func(*Conditions)

// Conditions are what a client asks of a write.
type Conditions struct {
	version      int64
	versionField string
	CreateOnly   bool
	RequestID    string
	Mask         []string
	ValidateOnly bool
}

// Expect refuses the write with VERSION_CONFLICT unless the stored version is this one; 0 does not check.
func Expect(version int64) WriteOption {
	return func(c *Conditions) {
		if version != 0 {
			c.version, c.versionField = version, "expected_version"
		}
	}
}

// ExpectRead is Expect for the version that stands in the machine itself.
func ExpectRead(version int64) WriteOption {
	return func(c *Conditions) {
		Expect(version)(c)
		c.versionField = "machine.version"
	}
}

// ErrValidated ends the transaction of a write that is only to be checked, and has passed.
var ErrValidated = errors.New("checked, and not written")

// ValidateOnly lets the whole write be done, and taken back.
func ValidateOnly() WriteOption { return func(c *Conditions) { c.ValidateOnly = true } }

// CreateOnly refuses the write where there is such a thing already.
func CreateOnly() WriteOption { return func(c *Conditions) { c.CreateOnly = true } }

// RequestID names a creation, so that a repeat of it is known.
func RequestID(id string) WriteOption { return func(c *Conditions) { c.RequestID = id } }

// Mask names the fields that the write sets: see package fieldmask.
func Mask(paths []string) WriteOption { return func(c *Conditions) { c.Mask = paths } }

func ConditionsOf(opts []WriteOption) (c Conditions) {
	for _, o := range opts {
		o(&c)
	}
	return c
}

// ResourceExists is the reason of resources without a reason of their own.
const ResourceExists = "RESOURCE_EXISTS"

// Replacing checks a thing that was written without being read before: version is the one that the write has made, 1 of
// a new thing. A transaction that gets an error is rolled back.
func (c Conditions) Replacing(what string, version int64) error {
	return c.Check(what, ResourceExists, Stored{version > 1, version - 1})
}

// Stored is what a write finds: nothing, or a thing of a version.
type Stored struct {
	Exists  bool
	Version int64
}

// Check compares the conditions with the stored object. what names the object, reason is the one of its existence.
func (c Conditions) Check(what, reason string, s Stored) error {
	switch {
	case c.CreateOnly && s.Exists:
		return failure.AlreadyExists(reason, "%s is there already and was not changed; leave create_only out to change it",
			what).
			WithField("create_only", "there is one already")
	case c.version != 0 && !s.Exists:
		return failure.Precondition("VERSION_CONFLICT", "%s is not there, and version %d was expected; read it again", what,
			c.version).
			WithField(c.versionField, "there is none")
	case c.version != 0 && c.version != s.Version:
		return failure.Precondition("VERSION_CONFLICT", "%s is at version %d, and version %d was expected; read it again",
			what, s.Version, c.version).WithField(c.versionField, "not the current version").WithMeta("version",
			fmt.Sprint(s.Version))
	}
	return nil
}
