package setup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/segment"
)

const (
	installerDir = "usr/share/ingot/installer/"
	// servingTime is how long a site agent may take until its segment is up.
	servingTime = time.Minute
)

// installerKinds are the files of an installer by the kinds that they have in the catalogue.
var installerKinds = []struct{ kind, file string }{
	{"installer-kernel", "kernel"}, {"installer-initrd", "initrd"}, {"installer-uki", "uki.efi"},
}

// checkInstaller sees to the installer of the package in the catalogue. Machines boot the newest complete one.
func (o *install) checkInstaller(ctx context.Context) (string, []change, error) {
	raw, err := os.ReadFile(o.files.path(installerDir + "manifest.json"))
	if errors.Is(err, os.ErrNotExist) {
		return "none in the package ingot-installer; machines cannot be installed before one is added", nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("read the installer's manifest: %w", err)
	}
	var manifest struct {
		Arch string `json:"arch"`
	}
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return "", nil, fmt.Errorf("read the installer's manifest: %w", err)
	}
	sum := sha256.Sum256(raw)
	suffix := "-" + hex.EncodeToString(sum[:6])
	var missing []change
	for _, k := range installerKinds {
		name := k.kind + suffix
		if o.contextReady(ctx) {
			_, err := o.ingot(ctx, "root", "", "image", "show", name, "-o", "name")
			var exit *errExit
			switch {
			case err == nil:
				continue
			case !errors.As(err, &exit) || exit.code != command.ExitNotFound:
				return "", nil, err
			}
		}
		missing = append(missing, change{"add image " + name, func(ctx context.Context) error {
			_, err := o.ingot(ctx, "root", "", "image", "add", name, o.files.path(installerDir+k.file), "--kind", k.kind,
				"--arch", manifest.Arch)
			return err
		}})
	}
	return "images installer-*" + suffix, missing, nil
}

// contextReady reports whether the API can be asked; before the first setup, in a dry run, it cannot.
func (o *install) contextReady(ctx context.Context) bool {
	return !o.dryRun || o.works(ctx, "root") == nil
}

func (o *install) checkSite(ctx context.Context) (string, []change, error) {
	what := fmt.Sprintf("site %s serves %s as %s, and %s", o.site, o.segment, o.served.GetAddress(),
		segment.Addresses(o.served))
	if o.contextReady(ctx) {
		s, err := o.getSite(ctx)
		if err != nil {
			return "", nil, err
		}
		for _, g := range s.GetSegments() {
			if g.GetInterface() != o.segment {
				continue
			}
			if g.GetAddress() != o.served.GetAddress() {
				return "", nil, fmt.Errorf("site %s serves %s as %s, and its address is %s: ingot site set changes it", o.site,
					o.segment, g.GetAddress(), o.served.GetAddress())
			}
			if mode := cmp.Or(g.GetMode(), "dhcp"); mode != o.mode {
				return "", nil, fmt.Errorf("site %s serves %s in mode %s, not %s: ingot site set changes it", o.site, o.segment,
					mode, o.mode)
			}
			if o.pool != "" && (g.GetPoolStart() != o.served.GetPoolStart() || g.GetPoolEnd() != o.served.GetPoolEnd()) {
				return "", nil, fmt.Errorf("site %s gives machines on %s the addresses %s-%s, not %s: ingot site set changes it",
					o.site, o.segment, g.GetPoolStart(), g.GetPoolEnd(), o.pool)
			}
			if (o.router != "" && g.GetRouter() != o.router) || (len(o.dns) > 0 && !slices.Equal(g.GetDns(), o.dns)) {
				return "", nil, fmt.Errorf("site %s tells machines on %s another router or other name servers (%q, %q): "+
					"ingot site set changes them", o.site, o.segment, g.GetRouter(), g.GetDns())
			}
			return fmt.Sprintf(
				"site %s serves %s as %s, and %s",
				o.site,
				o.segment,
				g.GetAddress(),
				segment.Addresses(g),
			), nil, nil
		}
	}
	return "", []change{{what, func(ctx context.Context) error {
		args := []string{"site", "add", o.site, "--segment", o.segment, "--address", o.served.GetAddress(), "--mode", o.mode,
			"--router", o.router, "--dns", strings.Join(o.dns, ",")}
		if o.served.GetPoolStart() != "" {
			args = append(args, "--pool", o.served.GetPoolStart()+"-"+o.served.GetPoolEnd())
		}
		_, err := o.ingot(ctx, "root", "", args...)
		return err
	}}}, nil
}

// getSite returns the site, or an empty one where there is none.
func (o *install) getSite(ctx context.Context) (*pb.Site, error) {
	site := &pb.Site{}
	out, err := o.ingot(ctx, "root", "", "site", "get", o.site, "-o", "json")
	var exit *errExit
	if errors.As(err, &exit) && exit.code == command.ExitNotFound {
		return site, nil
	}
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.Unmarshal([]byte(out), &tree); err != nil {
		return nil, fmt.Errorf("read the site: %w", err)
	}
	return site, command.FromTree(tree, site)
}

// checkAgent sees to the agent of the site. What it needs on this machine, ingot-agent setup knows.
func (o *install) checkAgent(ctx context.Context) (string, []change, error) {
	agent := program{name: "ingot-agent", args: []string{"setup", "--role", "site", "--segment", o.segment}}
	check := agent
	check.args = append(slices.Clone(agent.args), "--dry-run", "--output", "json")
	out, err := o.run(ctx, check)
	if err != nil {
		return "", nil, err
	}
	var plan struct {
		Changes []string `json:"changes"`
	}
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		return "", nil, fmt.Errorf("read what ingot-agent setup would do: %w", err)
	}
	if len(plan.Changes) == 0 {
		return "ingot-site is enrolled, enabled and connected", nil, nil
	}
	return "", []change{{strings.Join(plan.Changes, ", ") + " (ingot-agent setup)", func(ctx context.Context) error {
		if !o.files.exists("var/lib/ingot-site/identity") {
			token, err := o.ingot(ctx, "root", "", "token", "issue", "--role", "site", "--site", o.site, "--bare")
			if err != nil {
				return err
			}
			agent.args, agent.stdin = append(agent.args, "--token-file", "-"), token
		}
		_, err := o.run(ctx, agent)
		return err
	}}}, nil
}

// checkSegment waits for the evidence: the site agent's own report that the segment is served.
func (o *install) checkSegment(ctx context.Context) (string, []change, error) {
	if o.dryRun && !o.contextReady(ctx) {
		return "not served yet", nil, nil
	}
	err := until(ctx, servingTime, func() error {
		s, err := o.getSite(ctx)
		if err != nil {
			return err
		}
		for _, g := range s.GetSegments() {
			if g.GetInterface() == o.segment && g.GetState() == "up" {
				return nil
			} else if g.GetInterface() == o.segment {
				return fmt.Errorf("%s is not served: %s; ingot doctor says more", o.segment, g.GetState())
			}
		}
		return fmt.Errorf("site %s has no segment of %s", o.site, o.segment)
	})
	if err != nil && o.dryRun {
		return err.Error(), nil, nil
	}
	return o.segment + " is served: DHCP, TFTP, HTTP", nil, err
}
