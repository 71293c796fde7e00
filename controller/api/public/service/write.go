package service

import (
	"context"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

// versioned is a request to write a thing that has a version.
type versioned interface{ GetExpectedVersion() int64 }

// WriteOptions are the conditions that a request puts on its write: expected_version and, where it has one,
// create_only.
func WriteOptions(r versioned) ([]pgtx.WriteOption, error) {
	if r.GetExpectedVersion() < 0 {
		return nil, validate.Fault("expected_version", "not negative; 0 does not check")
	}
	opts := []pgtx.WriteOption{pgtx.Expect(r.GetExpectedVersion())}
	if c, ok := r.(interface{ GetCreateOnly() bool }); ok && c.GetCreateOnly() {
		if r.GetExpectedVersion() != 0 {
			return nil, validate.Fault("expected_version", "not together with create_only: what is not there has no version")
		}
		opts = append(opts, pgtx.CreateOnly())
	}
	if c, ok := r.(interface{ GetValidateOnly() bool }); ok && c.GetValidateOnly() {
		opts = append(opts, pgtx.ValidateOnly())
	}
	return opts, nil
}

// MayPurge refuses to leave out a decommission to callers who are no admins.
func MayPurge(ctx context.Context, purge bool) error {
	if c, ok := call.Caller(ctx); purge && ok && c.Scope < access.ScopeAdmin {
		return failure.Denied(access.ReasonScopeTooSmall,
			"purge needs a token of scope admin; decommission the machine instead").
			WithField("purge", "of an admin alone")
	}
	return nil
}
