package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/internal/clock"
)

// Config is what the command line gets from its process.
type Config struct {
	// Args are the arguments without the program's name.
	Args     []string
	In       io.Reader
	Out, Err io.Writer
	// OutTerminal and ErrTerminal say whether a person looks at Out and Err.
	OutTerminal, ErrTerminal bool
	// ReadPassword reads a line from the terminal without showing it; nil where In is none.
	ReadPassword func() ([]byte, error)
	Getenv       func(string) string
	Clock        clock.Clock
	// Connect makes the connection; client.Dial outside of tests.
	Connect func(client.Target, ...grpc.DialOption) (*grpc.ClientConn, error)
	// Version is this program's.
	Version string
}

// app is one run of the command line.
type app struct {
	cfg     Config
	flags   globalFlags
	conn    *grpc.ClientConn
	cancel  context.CancelFunc
	subject subject
}

type globalFlags struct {
	client.Flags
	configPath string
	output     string
	timeout    time.Duration
	retryFor   time.Duration
	noColor    bool
}

// subject is what the command is about, for hints.
type subject struct{ machine, operation string }

// perTry bounds one try of a call, so that an answer that never comes counts as lost.
const perTry = 20 * time.Second

// prepare runs before every command.
func (a *app) prepare(cmd *cobra.Command, _ []string) error {
	switch a.flags.output {
	case "table", "wide", "json", "yaml", "name":
	default:
		return usagef("--output must be table, wide, json, yaml or name, not %q", a.flags.output)
	}
	if a.flags.timeout < 0 || a.flags.retryFor < 0 {
		return usagef("--timeout and --retry-for must not be negative")
	}
	if a.flags.timeout > 0 {
		ctx, cancel := context.WithTimeout(cmd.Context(), a.flags.timeout)
		a.cancel = cancel
		cmd.SetContext(ctx)
	}
	return nil
}

func (a *app) close() {
	if a.cancel != nil {
		a.cancel()
	}
	if a.conn != nil {
		_ = a.conn.Close() // the process ends; there is nobody left to tell
	}
}

func (a *app) configPath() string {
	if a.flags.configPath != "" {
		return a.flags.configPath
	}
	return client.DefaultPath(a.cfg.Getenv)
}

// connect gives the one connection of this run.
func (a *app) connect() (*grpc.ClientConn, error) {
	if a.conn != nil {
		return a.conn, nil
	}
	path := a.configPath()
	file, err := client.Load(path)
	if err != nil {
		return nil, err
	}
	target, err := client.Resolve(a.flags.Flags, a.cfg.Getenv, file, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	retry := client.Retry(client.RetryConfig{
		Clock: a.cfg.Clock, For: a.flags.retryFor, Attempt: perTry,
		OnRetry: func(error) { a.note("cannot reach %s, retrying…", target.Server) },
	})
	a.conn, err = a.cfg.Connect(target, grpc.WithUnaryInterceptor(retry))
	return a.conn, err
}

// note tells a person something on the side. A lost note is not worth failing for.
func (a *app) note(format string, args ...any) {
	_, _ = fmt.Fprintf(a.cfg.Err, format+"\n", args...)
}

// style is how text on Out may look.
func (a *app) style() view.Style { return view.Style{Colour: a.colour(a.cfg.OutTerminal)} }

func (a *app) colour(terminal bool) bool {
	return terminal && !a.flags.noColor && a.cfg.Getenv("NO_COLOR") == "" && a.cfg.Getenv("TERM") != "dumb"
}

func (a *app) wide() bool { return a.flags.output == "wide" }

// document says that Out takes a document for a program, so that everything for people goes to Err.
func (a *app) document() bool {
	return a.flags.output == "json" || a.flags.output == "yaml" || a.flags.output == "name"
}

func (a *app) now() time.Time { return a.cfg.Clock.Now() }

// services are the clients of one connection.
type services struct {
	machines   pb.MachineServiceClient
	operations pb.OperationServiceClient
	plans      pb.PlanServiceClient
	runs       pb.RunServiceClient
	admin      pb.AdminServiceClient
	workflows  pb.WorkflowServiceClient
	nodes      pb.NodeServiceClient
	scripts    pb.ScriptServiceClient
	clusters   pb.ClusterServiceClient
	maas       pb.MAASServiceClient
	budgets    pb.BudgetServiceClient
	rollouts   pb.RolloutServiceClient
}

func (a *app) services() (*services, error) {
	conn, err := a.connect()
	if err != nil {
		return nil, err
	}
	return &services{
		machines: pb.NewMachineServiceClient(conn), operations: pb.NewOperationServiceClient(conn),
		plans: pb.NewPlanServiceClient(conn), runs: pb.NewRunServiceClient(conn), admin: pb.NewAdminServiceClient(conn),
		workflows: pb.NewWorkflowServiceClient(conn), nodes: pb.NewNodeServiceClient(conn),
		scripts: pb.NewScriptServiceClient(conn), clusters: pb.NewClusterServiceClient(conn),
		budgets: pb.NewBudgetServiceClient(conn),
		maas:    pb.NewMAASServiceClient(conn), rollouts: pb.NewRolloutServiceClient(conn),
	}, nil
}

// pages reads a list to its end, or to limit entries when limit is above 0.
func pages[T any](limit int, read func(size int32, token string) ([]T, string, error)) ([]T, error) {
	const most = 1000 // the server's
	var all []T
	for token := ""; ; {
		size := most
		if limit > 0 {
			size = min(most, limit-len(all))
		}
		page, next, err := read(int32(size), token)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if limit > 0 && len(all) >= limit {
			return all[:limit], nil
		}
		if next == "" || next == token {
			return all, nil
		}
		token = next
	}
}

// must is for mistakes in the making of the commands, which every test run would hit.
func (a *app) must(err error) {
	if err != nil {
		panic(err)
	}
}

func fixed(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
