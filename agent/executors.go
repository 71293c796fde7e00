package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/agent/inventory"
	"github.com/ingot-metal/ingot/agent/pid1"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/imagelayout"
)

// installerCapabilities are what an installer is for. It could do more, and is not asked to.
var installerCapabilities = []string{host.CapRepave, host.CapErase, host.CapReset, host.CapReboot, host.CapPreflight,
	host.CapAgentless, host.CapMirror, host.CapDataDisks}

func (l *life) isInstaller() bool { return l.who.Role == RoleInstaller }

// forInstaller leaves the capabilities that an installer has a use for.
func forInstaller(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(c string) bool { return !slices.Contains(installerCapabilities, c) })
}

// fetchBlob streams a file from the controller.
func (ctl controllerClient) fetchBlob(ctx context.Context, sha256 string, w io.Writer) error {
	return ctl.call(ctx, func(ctx context.Context, c fleetv1.AgentServiceClient) error {
		stream, err := c.FetchBlob(ctx, &fleetv1.FetchBlobRequest{Sha256: sha256})
		if err != nil {
			return fmt.Errorf("fetch blob: %w", err)
		}
		for {
			part, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("fetch blob: %w", err)
			}
			if _, err := w.Write(part.GetData()); err != nil {
				return fmt.Errorf("keep blob: %w", err)
			}
		}
	})
}

// Names of files in the state directory of a system that an installer has written.
const (
	nextConfig   = "agent.yaml"
	nextToken    = imagelayout.TokenFile
	nextImage    = "image.json"
	nextHostname = "etc/hostname"
)

// nextSystem asks for the identity of the system that the command writes, and for what it is given.
func (l *life) nextSystem(ctx context.Context, spec *fleetv1.CommandSpec) (disks.NextSystem, error) {
	var answer *fleetv1.IssueIdentityResponse
	err := l.runner.Call(ctx, func(ctx context.Context, c fleetv1.AgentServiceClient) (err error) {
		answer, err = c.IssueIdentity(ctx, &fleetv1.IssueIdentityRequest{CommandId: spec.GetCommandId()})
		return err
	})
	if err != nil {
		return disks.NextSystem{}, fmt.Errorf("ask for an identity: %w", err)
	}
	next := disks.NextSystem{InstanceID: evidence.InstanceOf(spec.GetOperationId())}
	if next.Seed, err = seedOf(answer); err != nil {
		return next, err
	}
	if spec.GetRepave().GetAgentless() {
		if answer.GetPhoneHomeSecret() == "" {
			return next, errors.New("the controller gave no secret to phone home with")
		}
		next.PhoneHome = l.a.cfg.Boot + "/phone-home/" + answer.GetPhoneHomeSecret()
		return next, nil
	}
	if next.Files, err = nextFiles(answer, l.a.cfg.Boot, spec); err == nil && l.a.cfg.Network != nil {
		next.Files[pid1.NetworkFile] = l.a.cfg.Network
	}
	return next, err
}

// seedOf reads what the new system is given for its first boot. Its faults are reported without its content.
func seedOf(a *fleetv1.IssueIdentityResponse) (firstboot.Seed, error) {
	var seed baremetalv1.SystemSeed
	if proto.Unmarshal(a.GetSeed(), &seed) != nil {
		return firstboot.Seed{}, errors.New("the new system's seed is no SystemSeed")
	}
	return firstboot.Seed{
		Hostname: cmp.Or(seed.GetHostname(), a.GetHostname()), AuthorizedKeys: seed.GetSshAuthorizedKeys(),
		UserData: seed.GetUserData(), NetworkConfig: seed.GetNetworkConfig(),
	}, nil
}

// nextFiles: the new system finds the controller as its installer did, through the boot server of its segment.
func nextFiles(a *fleetv1.IssueIdentityResponse, boot string, spec *fleetv1.CommandSpec) (map[string][]byte, error) {
	settings, err := yaml.Marshal(map[string]string{"proxy": boot})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", nextConfig, err)
	}
	image, err := json.Marshal(inventory.Image{
		Ref: spec.GetRepave().GetImageRef(), Digest: "sha256:" + spec.GetRepave().GetSha256Raw(),
		OperationID: spec.GetOperationId(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", nextImage, err)
	}
	files := map[string][]byte{
		nextConfig: settings, nextImage: append(image, '\n'), nextToken: []byte(a.GetBootstrapBundle() + "\n"),
	}
	if a.GetHostname() != "" {
		files[nextHostname] = []byte(a.GetHostname() + "\n")
	}
	return files, nil
}
