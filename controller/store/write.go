package store

import (
	"fmt"

	"github.com/ingot-metal/ingot/internal/failure"
)

// WriteOption is a condition that a client puts on a write.
type WriteOption func(*conditions)

// conditions are what a client asks of a write.
type conditions struct {
	version      int64
	versionField string
	createOnly   bool
	requestID    string
	mask         []string
}

// Expect refuses the write with VERSION_CONFLICT unless the stored version is this one; 0 does not check.
func Expect(version int64) WriteOption {
	return func(c *conditions) {
		if version != 0 {
			c.version, c.versionField = version, "expected_version"
		}
	}
}

// expectRead is Expect for the version that stands in the machine itself.
func expectRead(version int64) WriteOption {
	return func(c *conditions) {
		Expect(version)(c)
		c.versionField = "machine.version"
	}
}

// CreateOnly refuses the write where there is such a thing already.
func CreateOnly() WriteOption { return func(c *conditions) { c.createOnly = true } }

// RequestID names a creation, so that a repeat of it is known.
func RequestID(id string) WriteOption { return func(c *conditions) { c.requestID = id } }

// Mask names the fields that the write sets: see package fieldmask.
func Mask(paths []string) WriteOption { return func(c *conditions) { c.mask = paths } }

func conditionsOf(opts []WriteOption) (c conditions) {
	for _, o := range opts {
		o(&c)
	}
	return c
}

// resourceExists is the reason of what has no reason of its own.
const resourceExists = "RESOURCE_EXISTS"

// replacing checks a thing that was written without being read before: version is the one that the write has made, 1 of a new thing.
// A transaction that gets an error is rolled back.
func (c conditions) replacing(what string, version int64) error {
	return c.check(what, resourceExists, stored{version > 1, version - 1})
}

// stored is what a write finds: nothing, or a thing of a version.
type stored struct {
	exists  bool
	version int64
}

// check compares the conditions with what is stored. what is the thing in words, reason the one of its being there.
func (c conditions) check(what, reason string, s stored) error {
	switch {
	case c.createOnly && s.exists:
		return failure.AlreadyExists(reason, "%s is there already and was not changed; leave create_only out to change it", what).
			WithField("create_only", "there is one already")
	case c.version != 0 && !s.exists:
		return failure.Precondition("VERSION_CONFLICT", "%s is not there, and version %d was expected; read it again", what, c.version).
			WithField(c.versionField, "there is none")
	case c.version != 0 && c.version != s.version:
		return failure.Precondition("VERSION_CONFLICT", "%s is at version %d, and version %d was expected; read it again",
			what, s.version, c.version).WithField(c.versionField, "not the current version").WithMeta("version", fmt.Sprint(s.version))
	}
	return nil
}
