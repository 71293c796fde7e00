package provider

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
)

// Medium is one drive of a BMC's virtual media that a machine can boot from as a CD, and the image in it.
type Medium struct {
	// Slot names the drive for later calls.
	Slot string
	// Image is the URL of its image, or the last part of that where the BMC shows no more. Inserted may be true without
	// one, when a user has attached a local file.
	Image    string
	Inserted bool
}

// MediaOrder is an image to attach.
type MediaOrder struct {
	// URLs are where the BMC may fetch it, the best one first: some BMCs take https alone.
	URLs []string
	// Ours reports whether an image is one of this machine, of this operation or an earlier one.
	Ours func(image string) bool
}

// MediaProof is the proof that an image was read back as attached.
type MediaProof struct {
	Slot     string
	At       time.Time
	Protocol string
}

// VirtualMedia attaches images to machines. Errors are those of OutOfBand, and with reasons MEDIA_IN_USE and
// MEDIA_UNSUPPORTED.
type VirtualMedia interface {
	// Media reads the drives and their images.
	Media(ctx context.Context, t Target) ([]Medium, error)
	// InsertMedia returns when the image was read back. One of ours that is attached already is ejected first; anybody
	// else's is left alone.
	InsertMedia(ctx context.Context, t Target, e effect.Cause, o MediaOrder) (MediaProof, error)
	// EjectMedia ejects our images, and returns once they were read back as gone, with their number.
	EjectMedia(ctx context.Context, t Target, ours func(image string) bool) (int, error)
}
