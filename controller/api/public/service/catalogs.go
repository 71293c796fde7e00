package service

import (
	"context"
	"io"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/controller/domain/access"
)

// Images takes images into the catalogue and out of it; *image.Catalogue does.
type Images interface {
	Add(ctx context.Context, im *baremetalv1.Image, actor string) (*baremetalv1.Image, error)
	Upload(ctx context.Context, im *baremetalv1.Image, r io.Reader, actor string) (*baremetalv1.Image, error)
	Remove(ctx context.Context, ref, actor string) (*baremetalv1.Image, error)
}

// APITokens are the bearer tokens in force on this controller.
type APITokens interface {
	OfFile() []access.FileToken
	// Refresh makes a change of the database's tokens count on this controller at once.
	Refresh()
}

// Scripts takes scripts into the catalogue and out of it; *script.Catalogue does.
type Scripts interface {
	Add(ctx context.Context, s *baremetalv1.Script, content []byte, actor string) (*baremetalv1.Script, error)
	Remove(ctx context.Context, ref, actor string) (*baremetalv1.Script, error)
}
