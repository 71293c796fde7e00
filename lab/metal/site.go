package metal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/process"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Account is that of every BMC here, and CredentialsRef its name in the controller.
const (
	CredentialsRef = "lab-bmc"
	// BMCNetwork is where every BMC here is.
	BMCNetwork = "198.51.100.0/24"
	Username   = "lab"
	Password   = "rack-and-ruin"
)

// setUpSite sets the site's segment, and the credentials of its BMCs.
func (l *Lab) setUpSite(ctx context.Context) error {
	segment := &pb.Segment{
		Name: segmentName, Interface: siteCard, Address: fmt.Sprintf("%s/%d", SiteAddress, prefixBits),
		PoolStart: PoolStart, PoolEnd: PoolEnd, Router: SiteAddress,
	}
	if l.cfg.Proxy {
		segment.Mode, segment.PoolStart, segment.PoolEnd = "proxy", "", ""
	}
	if l.cfg.Static {
		segment.Mode, segment.PoolStart, segment.PoolEnd = "static", "", ""
	}
	if _, err := l.client.Admin.SetSite(ctx,
		&pb.SetSiteRequest{Site: SiteName, Segments: []*pb.Segment{segment}}); err != nil {
		return err
	}
	_, err := l.client.Admin.SetBMCCredentials(ctx, &pb.SetBMCCredentialsRequest{
		CredentialsRef: CredentialsRef, Username: Username, Password: Password, AllowedEndpoints: []string{BMCNetwork},
	})
	return err
}

// enrolSite enrols the site agent by a token that works once, and returns when it serves the segment.
func (l *Lab) enrolSite(ctx context.Context) error {
	issued, err := l.client.Admin.IssueBootstrapToken(ctx, &pb.IssueBootstrapTokenRequest{
		Role: pb.AgentRole_AGENT_ROLE_SITE, Site: SiteName,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.path("site", "token"), []byte(issued.GetBundle()), 0o600); err != nil {
		return err
	}
	config := l.path("site", "agent.yaml")
	if err := os.WriteFile(config, []byte(l.siteConfig()), 0o600); err != nil {
		return err
	}
	l.site = &process.Logged{Name: "site agent", Log: l.path("logs", "site.log"), Command: func() *exec.Cmd {
		return l.ns.Command(context.Background(), l.cfg.Agent, "run", "--config", config)
	}}
	return l.StartSite(ctx)
}

func (l *Lab) siteConfig() string {
	return fmt.Sprintf(`role: site
state_dir: %s
token_file: %s
site:
  interfaces: [%s]
  bmc_poll: 5s
`, l.path("site", "state"), l.path("site", "token"), siteCard)
}

// StartSite starts the site agent, again after KillSite, and returns when it serves what the controller wants.
func (l *Lab) StartSite(ctx context.Context) error {
	if err := l.site.Start(); err != nil {
		return err
	}
	var problem error
	err := l.site.Await(ctx, "the site is served", func() bool {
		s, err := l.client.Admin.GetSite(ctx, &pb.GetSiteRequest{Site: SiteName})
		problem = err
		return err == nil && s.GetRevision() > 0 && s.GetAppliedRevision() >= s.GetRevision() && up(s)
	})
	if status.Code(problem) == codes.Canceled {
		problem = nil
	}
	return errors.Join(err, problem)
}

func up(s *pb.Site) bool {
	for _, segment := range s.GetSegments() {
		if segment.GetState() != "up" {
			return false
		}
	}
	return true
}

// KillSite sends SIGKILL to the site agent.
func (l *Lab) KillSite() error { return l.site.Kill() }
