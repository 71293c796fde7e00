package health

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/encode"
	"github.com/ingot-metal/ingot/cli/times"
	"github.com/ingot-metal/ingot/internal/doctor"
	"github.com/ingot-metal/ingot/internal/supportbundle"
)

// Bounds of what a bundle lists.
const (
	bundledAgents = 5000
	bundledFailed = 25
)

func (a commands) supportCmd() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Write what helpers want to see of an installation into one archive, without secrets",
		Long: `Write a .tar.gz of what the API shows: server, what doctor says, controllers, the CA, sites and agents with
their versions, machines by state, and the last operations that failed. It holds no secret, parameter or
script output. What cannot be had is named in its bundle.json.

ingot-controller support-bundle on a controller's machine has more: configuration, log, metrics, database.`,
		Example: "  ingot support-bundle --out support.tar.gz",
		Args:    cobra.NoArgs,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, _ []string) error {
			if out == "" {
				out = "ingot-support-" + times.FileStamp(a.app.Now()) + ".tar.gz"
			}
			file, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return fmt.Errorf("write the bundle: %w", err)
			}
			m, err := supportbundle.Write(cmd.Context(), file, supportbundle.Config{
				Program: "ingot", Version: cmd.Root().Version, Folder: "ingot-support", Now: a.app.Now(),
				Parts: a.supportParts(svc, cmd.Root().Version),
			})
			if closeErr := file.Close(); err == nil {
				err = closeErr
			}
			if err != nil {
				_ = os.Remove(out) // half a bundle is of no use, and the first error is returned
				return err
			}
			return a.app.Write(said(out, m))
		}),
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write, which must not exist (default: ingot-support-TIME.tar.gz)")
	return cmd
}

func said(path string, m supportbundle.Manifest) string {
	text := fmt.Sprintf("wrote %s: %d files\n", path, len(m.Files))
	var names []string
	for name := range m.Missing {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		text += fmt.Sprintf("missing %s: %s\n", name, m.Missing[name])
	}
	return text
}

func (a commands) supportParts(svc *command.Services, version string) []supportbundle.Part {
	return []supportbundle.Part{
		message("server.json", func(ctx context.Context) (proto.Message, error) {
			return svc.Admin.GetServerInfo(ctx, &pb.GetServerInfoRequest{})
		}),
		supportbundle.JSON("doctor.json", func(ctx context.Context) ([]doctor.Finding, error) {
			return (&examination{a: a, svc: svc, version: version}).all(ctx), nil
		}),
		message("controllers.json", func(ctx context.Context) (proto.Message, error) {
			return svc.Admin.ListControllers(ctx, &pb.ListControllersRequest{All: true, PageSize: 100})
		}),
		message("authority.json", func(ctx context.Context) (proto.Message, error) {
			return svc.Authority.GetAuthority(ctx, &pb.GetAuthorityRequest{})
		}),
		message("machines.json", func(ctx context.Context) (proto.Message, error) {
			return svc.Machines.CountMachines(ctx, &pb.CountMachinesRequest{GroupBy: []string{"effective_state"}})
		}),
		supportbundle.JSON("sites.json", func(ctx context.Context) ([]string, error) { return siteNames(ctx, svc) }),
		supportbundle.JSON("agents.json", func(ctx context.Context) ([]bundledAgent, error) {
			return bundleAgents(ctx, svc)
		}),
		supportbundle.JSON("failed-operations.json", func(ctx context.Context) ([]bundledOperation, error) {
			return bundleFailed(ctx, svc)
		}),
	}
}

func message(name string, get func(ctx context.Context) (proto.Message, error)) supportbundle.Part {
	return supportbundle.Part{Name: name, Make: func(ctx context.Context) ([]byte, error) {
		m, err := get(ctx)
		if err != nil {
			return nil, err
		}
		return encode.Line(m)
	}}
}

func siteNames(ctx context.Context, svc *command.Services) (out []string, err error) {
	all, err := command.All[*pb.Site](ctx, 0, svc.Admin.ListSites, &pb.ListSitesRequest{})
	for _, s := range all {
		out = append(out, s.GetSite())
	}
	return out, err
}

type bundledAgent struct {
	ID        string    `json:"agent_id"`
	Role      string    `json:"role"`
	Machine   string    `json:"machine_id,omitempty"`
	Site      string    `json:"site,omitempty"`
	Version   string    `json:"version"`
	Connected bool      `json:"connected"`
	Heard     time.Time `json:"last_heartbeat_at"`
}

func bundleAgents(ctx context.Context, svc *command.Services) (out []bundledAgent, err error) {
	all, err := command.All[*pb.Agent](ctx, bundledAgents, svc.Admin.ListAgents, &pb.ListAgentsRequest{})
	for _, k := range all {
		out = append(out, bundledAgent{k.GetAgentId(), k.GetRole().String(), k.GetMachineId(), k.GetSite(), k.GetVersion(),
			k.GetConnected(), k.GetLastHeartbeatAt().AsTime()})
	}
	return out, err
}

type bundledOperation struct {
	ID       string    `json:"operation_id"`
	Machine  string    `json:"machine_id"`
	Type     string    `json:"type"`
	Stage    string    `json:"stage"`
	Code     string    `json:"code"`
	Created  time.Time `json:"created_at"`
	Finished time.Time `json:"finished_at"`
}

// bundleFailed leaves parameters and messages out: what a script has printed may hold anything.
func bundleFailed(ctx context.Context, svc *command.Services) (out []bundledOperation, err error) {
	r, err := svc.Operations.ListOperations(ctx,
		&pb.ListOperationsRequest{Filter: "phase=FAILED", PageSize: bundledFailed})
	for _, o := range r.GetOperations() {
		out = append(out, bundledOperation{o.GetOperationId(), o.GetMachineId(), o.GetType().String(), o.GetCurrentStage(),
			o.GetError().GetCode(), o.GetCreatedAt().AsTime(), o.GetFinishedAt().AsTime()})
	}
	return out, err
}
