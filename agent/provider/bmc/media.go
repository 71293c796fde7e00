package bmc

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/failure"
)

var _ provider.VirtualMedia = (*Provider)(nil)

// mediaWithin is how long an image may take to be read back: some BMCs fetch all of it before they show it.
const mediaWithin = 2 * time.Minute

// Media returns the drives of a machine and the images in them.
func (p *Provider) Media(ctx context.Context, t provider.Target) ([]provider.Medium, error) {
	media, _, err := p.media(ctx, t)
	return media, err
}

func (p *Provider) media(ctx context.Context, t provider.Target) (media []provider.Medium, protocol string, err error) {
	err = p.call(ctx, t, func(ctx context.Context, conn driver) (err error) {
		protocol = conn.Protocol()
		media, err = conn.Media(ctx)
		return err
	})
	return media, protocol, err
}

// InsertMedia attaches an image, and returns when it was read back.
func (p *Provider) InsertMedia(
	ctx context.Context, t provider.Target, e effect.Cause, o provider.MediaOrder,
) (provider.MediaProof, error) {
	media, protocol, err := p.media(ctx, t)
	if err != nil {
		return provider.MediaProof{}, err
	}
	proof := provider.MediaProof{Protocol: protocol}
	if i := slices.IndexFunc(media, func(m provider.Medium) bool { return holds(m, o.URLs) }); i >= 0 {
		proof.Slot, proof.At = media[i].Slot, p.cfg.Clock.Now()
		return proof, nil
	}
	if slices.ContainsFunc(media, func(m provider.Medium) bool { return m.Inserted && o.Ours(m.Image) }) {
		if _, err := p.EjectMedia(ctx, t, o.Ours); err != nil {
			return proof, err
		}
		if media, _, err = p.media(ctx, t); err != nil {
			return proof, err
		}
	}
	free := slices.IndexFunc(media, func(m provider.Medium) bool { return !m.Inserted })
	if free < 0 {
		return proof, failure.Precondition("MEDIA_IN_USE", "the BMC of %s has an image of another party attached, which is "+
			"left alone; eject it there, and start again", t.MachineID).WithMeta(EvidenceProtocol, protocol)
	}
	proof.Slot = media[free].Slot
	p.cfg.Log.InfoContext(
		ctx,
		"attaching an image",
		"machine_id",
		t.MachineID,
		"operation_id",
		e.OperationID,
		"command_id",
		e.CommandID,
		"drive",
		proof.Slot,
	)
	if err := p.insert(ctx, t, proof.Slot, o.URLs); err != nil {
		return proof, err
	}
	proof.At, err = p.awaitMedia(ctx, t, "attach the image", func(media []provider.Medium) bool {
		return slices.ContainsFunc(media, func(m provider.Medium) bool { return holds(m, o.URLs) })
	})
	return proof, err
}

// holds reports whether a drive has one of the images. Some services show the last part of a URL alone.
func holds(m provider.Medium, urls []string) bool {
	return m.Inserted && slices.ContainsFunc(urls, func(u string) bool {
		return m.Image == u || m.Image != "" && !strings.Contains(m.Image, "://") && path.Base(m.Image) == path.Base(u)
	})
}

// insert offers each URL until one is taken.
func (p *Provider) insert(ctx context.Context, t provider.Target, slot string, urls []string) error {
	var refused error
	for _, u := range urls {
		err := p.call(ctx, t, func(ctx context.Context, conn driver) error { return conn.InsertMedia(ctx, slot, u) })
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, provider.ErrRefused):
			return err
		case refused == nil:
			refused = err
		}
	}
	return failure.Precondition("MEDIA_UNSUPPORTED", "the BMC of %s does not attach the image: %v", t.MachineID, refused)
}

// awaitMedia reads the drives until they are as wanted, and returns that time.
func (p *Provider) awaitMedia(
	ctx context.Context, t provider.Target, what string, done func([]provider.Medium) bool,
) (time.Time, error) {
	deadline := p.cfg.Clock.Now().Add(max(min(mediaWithin, 4*p.cfg.Within), p.cfg.Within))
	for round := 0; ; round++ {
		media, protocol, err := p.media(ctx, t)
		now := p.cfg.Clock.Now()
		switch {
		case err == nil && done(media):
			return now, nil
		case fatal(ctx, err), err != nil && now.After(deadline):
			return time.Time{}, err
		case now.After(deadline):
			return time.Time{}, failure.Unavailable("BMC_NO_EFFECT",
				"the BMC of %s has accepted to %s, and does not show it", t.MachineID, what).
				WithMeta(EvidenceProtocol, protocol)
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-p.cfg.Clock.After(pollAfter(round)):
		}
	}
}

// EjectMedia ejects our images, and returns once they were read back as gone.
func (p *Provider) EjectMedia(ctx context.Context, t provider.Target, ours func(image string) bool) (int, error) {
	media, _, err := p.media(ctx, t)
	if err != nil {
		return 0, err
	}
	is := func(m provider.Medium) bool { return m.Inserted && ours(m.Image) }
	count := 0
	for _, m := range media {
		if !is(m) {
			continue
		}
		count++
		err := p.call(ctx, t, func(ctx context.Context, conn driver) error { return conn.EjectMedia(ctx, m.Slot) })
		if err != nil {
			return count, err
		}
	}
	if count == 0 {
		return 0, nil
	}
	_, err = p.awaitMedia(ctx, t, "eject the image", func(media []provider.Medium) bool {
		return !slices.ContainsFunc(media, is)
	})
	return count, err
}
