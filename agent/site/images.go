package site

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/site/httpboot"
	"github.com/ingot-metal/ingot/agent/site/media"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/internal/mediaproof"
	"github.com/ingot-metal/ingot/internal/task"
)

// DefaultMediaPort is where BMCs fetch images unless the configuration has another port.
const DefaultMediaPort = 8082

// The bounds of the connections of BMCs that fetch images. One reads its image over a few.
const (
	mediaConns      = 512
	mediaConnsOfBMC = 16
)

// setUpMedia makes what serves, attaches and ejects images.
func (s *Service) setUpMedia() error {
	if s.cfg.BMCs == nil {
		return nil
	}
	var err error
	s.images, err = media.NewServer(media.ServerConfig{
		Port: cmp.Or(s.cfg.MediaPort, DefaultMediaPort),
		Open: func(ctx context.Context, sha256 string) (media.Blob, error) { return s.cache.Open(ctx, sha256) },
		Limit: func(l net.Listener) net.Listener {
			return httpboot.Limit(l, mediaConns, mediaConnsOfBMC)
		},
		Log: s.cfg.Log,
	})
	if err != nil {
		return err
	}
	s.keeper, err = media.NewKeeper(media.KeeperConfig{
		Path: s.cfg.MediaFile, BMCs: s.cfg.BMCs, Server: s.images, Say: s.cfg.Say, Clock: s.cfg.Clock, Log: s.cfg.Log,
	})
	return err
}

// keepImages serves images until ctx ends, and starts the server again after an error, such as a port in use.
func (s *Service) keepImages(ctx context.Context) error {
	for {
		err := task.Run(ctx, "images", s.images.Run)
		if ctx.Err() != nil {
			return nil
		}
		s.cfg.Log.Error("images for BMCs are not served; starting again", "error", cmp.Or(err, errors.New("ended by itself")))
		select {
		case <-ctx.Done():
			return nil
		case <-s.cfg.Clock.After(restartAfter):
		}
	}
}

// InsertMedia has a machine's BMC attach the image of its assignment.
func (s *Service) InsertMedia(
	ctx context.Context, t provider.Target, e effect.Cause,
) (provider.MediaProof, error) {
	return s.keeper.Insert(ctx, t, e)
}

// certified ejects the image of an installer that has got its certificate.
func (s *Service) certified(a segment.Assignment) {
	if s.keeper != nil && a.Media != nil {
		s.keeper.Used(a.MachineID, a.Token)
	}
}

// mediaBoots are the machines that start from images.
func mediaBoots(p plan) []media.Boot {
	var out []media.Boot
	for _, sp := range p.segments {
		for _, a := range sp.view.Assignments {
			if a.Media == nil || !a.Boots() || len(sp.view.Installers) == 0 {
				continue
			}
			i := slices.IndexFunc(out, func(b media.Boot) bool { return b.MachineID == a.MachineID })
			if i < 0 {
				out = append(out, mediaBoot(sp, a))
				continue
			}
			if at := mediaBoot(sp, a); out[i].Site != at.Site {
				if a.Media.Address.IsValid() && sp.segment.Network().Contains(a.Media.Address.Addr()) {
					out[i].Site, out[i].Own.Gateway, out[i].Own.DNS = at.Site, at.Own.Gateway, at.Own.DNS
				}
				continue
			}
			out[i].Own.MACs = append(out[i].Own.MACs, a.MAC.String())
		}
	}
	return out
}

// mediaBoot is what one network card's machine starts, on one segment.
func mediaBoot(sp segmentPlan, a segment.Assignment) media.Boot {
	f := sp.view.Installers[0]
	own := mediaproof.File{Secret: a.Media.Secret, MACs: []string{a.MAC.String()}, Address: a.Media.Address}
	if own.Address.IsValid() && own.Address.Masked().Contains(sp.segment.Router) {
		own.Gateway = sp.segment.Router
	}
	if own.Address.IsValid() {
		own.DNS = slices.Clone(sp.segment.DNS)
	}
	return media.Boot{
		MachineID: a.MachineID, OperationID: a.OperationID, Token: a.Token, Site: sp.segment.HTTPBase(),
		Rescue: a.Mode == segment.BootRescue,
		Files:  media.Files{Arch: f.Arch, Kernel: f.Kernel, Initrd: f.Initrd, UKI: f.UKI, Cmdline: f.Cmdline},
		Own:    own,
	}
}

// targetsOf are the BMCs of a document.
func targetsOf(list []*fleetv1.BMCTarget) []provider.Target {
	var out []provider.Target
	for _, t := range list {
		out = append(out, BMCTarget(t))
	}
	return out
}

// BMCTarget is a machine's BMC as providers take it.
func BMCTarget(t *fleetv1.BMCTarget) provider.Target {
	return provider.Target{
		MachineID: t.GetMachineId(), BMCEndpoint: t.GetEndpoint(), CredentialsRef: t.GetCredentialsRef(),
		CredentialsVersion: t.GetCredentialsVersion(), MACs: t.GetMacAddresses(),
		UUID: t.GetSystemUuid(), Serial: t.GetSerialNumber(), BIOS: t.GetBios(),
		Light: lightOf(t.GetIdentifyLight()),
	}
}

// lightOf leaves the light alone where the order is none that is known here.
func lightOf(order string) provider.Light {
	if l := provider.Light(order); l == provider.LightOn || l == provider.LightOff {
		return l
	}
	return provider.LightUnknown
}
