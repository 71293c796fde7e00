package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/encode"
	"github.com/ingot-metal/ingot/cli/times"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/erasure"
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
	// Zone is the person's, in which times are shown; nil is UTC.
	Zone *time.Location
	// Connect makes the connection; client.Dial outside of tests.
	Connect func(client.Target, ...grpc.DialOption) (*grpc.ClientConn, error)
	// Version is this program's.
	Version string
}

// App is one run of the command line.
type App struct {
	Config Config
	// RawOut is Out without the escapes, for bytes of files and for programs that draw the whole screen.
	RawOut   io.Writer
	Flags    globalFlags
	conn     *grpc.ClientConn
	services *Services
	cancel   context.CancelFunc
	Subject  Subject
	// path selects from documents where --output is jsonpath=PATH; else it is nil.
	path *encode.Path
	// Exact keeps the strings of answers as they are, for records that are exported.
	Exact bool
	// Anonymous connects without a token, until Reconnect.
	Anonymous bool
}

type globalFlags struct {
	client.Flags
	ConfigPath string
	Output     string
	Timeout    time.Duration
	RetryFor   time.Duration
	NoColor    bool
	UTC        bool
}

// Subject is what the command is about, for hints.
type Subject struct{ Machine, Operation string }

// perTry bounds one try of a call, so that an answer that never comes counts as lost.
const perTry = 20 * time.Second

// pathPrefix begins an --output that selects parts of the document that json prints.
const pathPrefix = "jsonpath="

// Outputs annotates a command with a further form of --output.
const Outputs = "outputs"

// Prepare runs before every command.
func (a *App) Prepare(cmd *cobra.Command, _ []string) error {
	switch out := a.Flags.Output; {
	case slices.Contains([]string{"table", "wide", "json", "yaml", "name"}, out):
	case out != "" && out == cmd.Annotations[Outputs]:
	case strings.HasPrefix(out, pathPrefix):
		var err error
		if a.path, err = encode.ParsePath(strings.TrimPrefix(out, pathPrefix)); err != nil {
			return Usagef("--output %s: %w", out, err)
		}
	default:
		return Usagef("--output must be table, wide, json, yaml, name or jsonpath=PATH, not %q", a.Flags.Output)
	}
	if err := widened(cmd); err != nil {
		return err
	}
	times.SetZone(a.zone())
	if a.Flags.Timeout < 0 || a.Flags.RetryFor < 0 {
		return Usagef("--timeout and --retry-for must not be negative")
	}
	if a.Flags.Timeout > 0 {
		ctx, cancel := context.WithTimeout(cmd.Context(), a.Flags.Timeout)
		a.cancel = cancel
		cmd.SetContext(ctx)
	}
	return nil
}

// zone is that of every time in this run's output for people.
func (a *App) zone() *time.Location {
	if a.Flags.UTC || a.Config.Getenv("INGOT_UTC") != "" {
		return time.UTC
	}
	return a.Config.Zone
}

// Close ends the connection.
func (a *App) Close() {
	if a.cancel != nil {
		a.cancel()
	}
	if a.conn != nil {
		_ = a.conn.Close() // the process ends; the error has no reader
	}
}

// Reconnect has the next call made on a new connection, with the token that there is then.
func (a *App) Reconnect() {
	if a.conn != nil {
		_ = a.conn.Close() // nothing is under way on it
	}
	a.conn, a.Anonymous = nil, false
}

// ConfigPath is the path of the configuration file.
func (a *App) ConfigPath() string {
	if a.Flags.ConfigPath != "" {
		return a.Flags.ConfigPath
	}
	return client.DefaultPath(a.Config.Getenv)
}

// Target is what a connection needs.
func (a *App) Target() (client.Target, error) {
	path := a.ConfigPath()
	file, err := client.Load(path)
	if err != nil {
		return client.Target{}, err
	}
	return client.Resolve(a.Flags.Flags, a.Config.Getenv, file, filepath.Dir(path))
}

// ConnectionArgs are the flags that give another run of this program the same connection.
func (a *App) ConnectionArgs() []string {
	var out []string
	for _, f := range [][2]string{
		{"context", a.Flags.Context}, {"server", a.Flags.Server}, {"ca-file", a.Flags.CAFile}, {"ca-hash", a.Flags.CAHash},
		{"token-file", a.Flags.TokenFile}, {"config", a.Flags.ConfigPath},
	} {
		if f[1] != "" {
			out = append(out, "--"+f[0]+"="+f[1])
		}
	}
	return out
}

// connect returns the one connection of this run.
func (a *App) connect() (*grpc.ClientConn, error) {
	if a.conn != nil {
		return a.conn, nil
	}
	target, err := a.Target()
	if err != nil {
		return nil, err
	}
	if a.Anonymous {
		target.Token, target.Login = "", ""
	}
	retry := client.Retry(client.RetryConfig{
		Clock: a.Config.Clock, For: a.Flags.RetryFor, Attempt: perTry,
		OnRetry: func(error) { a.Note("cannot reach %s, retrying…", target.Server) },
	})
	a.conn, err = a.Config.Connect(target, append(a.cleaned(), grpc.WithUnaryInterceptor(retry))...)
	return a.conn, err
}

// Root is the root certificate that this run trusts. It takes no connection, and no server to be named.
func (a *App) Root() (erasure.Trust, error) {
	t, err := a.Target()
	if err != nil && !errors.Is(err, client.ErrNoServer) {
		return erasure.Trust{}, err
	}
	roots, hash, err := t.Root()
	if err == nil && roots == nil && hash == nil {
		err = Usagef("no root certificate: use --ca-file, --ca-hash, INGOT_CA_FILE, or a context that has one")
	}
	return erasure.Trust{Roots: roots, RootHash: hash}, err
}

// Note prints a remark on standard error. A lost note is not worth failing for.
func (a *App) Note(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Config.Err, format+"\n", args...)
}

// Style is how text on Out may look.
func (a *App) Style() view.Style { return a.style(a.Config.OutTerminal) }

// style is how text looks on a screen, or where there is none.
func (a *App) style(terminal bool) view.Style {
	return view.Style{Colour: a.colour(terminal), Now: a.Now()}
}

func (a *App) colour(terminal bool) bool {
	return terminal && !a.Flags.NoColor && a.Config.Getenv("NO_COLOR") == "" && a.Config.Getenv("TERM") != "dumb"
}

// Wide reports whether a table has all its columns.
func (a *App) Wide() bool { return a.Flags.Output == "wide" }

// Document reports whether Out takes a document for a program, so that everything for people goes to Err.
func (a *App) Document() bool {
	return a.ForPrograms() || a.Flags.Output == "name"
}

// Now is the time of this run's clock.
func (a *App) Now() time.Time { return a.Config.Clock.Now() }

// Services are the clients of one connection.
type Services struct {
	Machines   pb.MachineServiceClient
	Operations pb.OperationServiceClient
	Plans      pb.PlanServiceClient
	Runs       pb.RunServiceClient
	Admin      pb.AdminServiceClient
	Workflows  pb.WorkflowServiceClient
	Nodes      pb.NodeServiceClient
	Scripts    pb.ScriptServiceClient
	Clusters   pb.ClusterServiceClient
	MAAS       pb.MAASServiceClient
	Budgets    pb.BudgetServiceClient
	Rollouts   pb.RolloutServiceClient
	Access     pb.AccessServiceClient
	Authority  pb.AuthorityServiceClient
	Views      pb.ViewServiceClient
}

// Services returns the clients of the one connection, which the first call makes.
func (a *App) Services() *Services {
	if a.services != nil {
		return a.services
	}
	conn := lateConn{a}
	a.services = &Services{
		Machines: pb.NewMachineServiceClient(conn), Operations: pb.NewOperationServiceClient(conn),
		Plans: pb.NewPlanServiceClient(conn), Runs: pb.NewRunServiceClient(conn), Admin: pb.NewAdminServiceClient(conn),
		Workflows: pb.NewWorkflowServiceClient(conn), Nodes: pb.NewNodeServiceClient(conn),
		Scripts: pb.NewScriptServiceClient(conn), Clusters: pb.NewClusterServiceClient(conn),
		Budgets: pb.NewBudgetServiceClient(conn),
		MAAS:    pb.NewMAASServiceClient(conn), Rollouts: pb.NewRolloutServiceClient(conn),
		Access: pb.NewAccessServiceClient(conn), Authority: pb.NewAuthorityServiceClient(conn),
		Views: pb.NewViewServiceClient(conn),
	}
	return a.services
}

// lateConn is the connection of a run, made by its first call. Commands name their methods before flags are
// read.
type lateConn struct{ app *App }

// Invoke implements grpc.ClientConnInterface.
func (l lateConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	conn, err := l.app.connect()
	if err != nil {
		return err
	}
	return conn.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (l lateConn) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	conn, err := l.app.connect()
	if err != nil {
		return nil, err
	}
	return conn.NewStream(ctx, desc, method, opts...)
}

// Run makes the body of a command that calls the controller: it gets the clients of the one connection.
func (a *App) Run(body func(*cobra.Command, *Services, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if _, err := a.connect(); err != nil {
			return err
		}
		return body(cmd, a.Services(), args)
	}
}

// Pages reads a list to its end, or to limit entries when limit is above 0.
func Pages[T any](limit int, read func(size int32, token string) ([]T, string, error)) ([]T, error) {
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

// Names are those of all entries of a list, for the output form name.
func Names[T any](all []T, name func(T) string) []string {
	out := make([]string, len(all))
	for i, each := range all {
		out[i] = name(each)
	}
	return out
}

// Must is for mistakes in the making of the commands, which every test run would hit.
func (a *App) Must(err error) {
	if err != nil {
		panic(err)
	}
}

// Fixed completes a flag with these values.
func Fixed(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
