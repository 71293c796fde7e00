package catalog_test

import (
	"context"

	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/failure"
)

type rig = publictest.Rig

// badCall is a call that is refused, with the kind, the reason and the field of its error.
type badCall struct {
	name   string
	kind   failure.Kind
	reason string
	field  string
	call   func(ctx context.Context, r *rig) error
}

// only drops the answer.
func only[T any](_ T, err error) error { return err }

const (
	invalid      = failure.KindInvalid
	notFound     = failure.KindNotFound
	precondition = failure.KindPrecondition
	exists       = failure.KindAlreadyExists
	unbuilt      = failure.KindUnimplemented
)
