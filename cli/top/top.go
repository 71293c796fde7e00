// Package top is `ingot top`: the fleet on the whole terminal, live.
package top

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/cli/command"
)

const (
	// mostMachines are read of a fleet: the first in the order, and more than anybody scrolls through.
	mostMachines = 500
	// readWithin bounds one look at the fleet, so that an old picture is marked.
	readWithin = 10 * time.Second
)

// Commands returns top.
func Commands(app *command.App) []*cobra.Command {
	every := 2 * time.Second
	var filter string
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the fleet live on the whole terminal",
		Long: `Show the fleet live on the whole terminal: counts by effective state, the machines that need somebody
first, why one is as it is, and what may be done now. An action runs after a yes. ? lists the keys.

When the controller does not answer, the picture says since when it is not current, and loses its colours.`,
		Example: "  ingot top\n  ingot top --filter site=berlin",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !app.Config.OutTerminal || app.Document() {
				return command.Usagef("ingot top needs a terminal; for programs: ingot status -o json")
			}
			if every < time.Second {
				return command.Usagef("--every must be at least 1s")
			}
			return run(cmd.Context(), app, query{filter: filter}, every)
		},
	}
	cmd.Flags().StringVar(&filter, "filter", "", "terms such as state=ATTENTION,site=berlin, as in ingot list")
	cmd.Flags().DurationVar(&every, "every", every, "time between two looks")
	return []*cobra.Command{cmd}
}

func run(ctx context.Context, app *command.App, q query, every time.Duration) error {
	svc := app.Services()
	m := &model{app: app, svc: svc, every: every, ctx: ctx, s: screen{style: app.Style(), query: q, now: app.Now()}}
	first, err := m.read(q)
	if err != nil {
		return err // a wrong address, token or filter
	}
	m.s.take(*first)
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithInput(app.Config.In), tea.WithOutput(app.RawOut)}
	if _, err := tea.NewProgram(m, options...).Run(); err != nil {
		return fmt.Errorf("show the fleet: %w", err)
	}
	return nil
}

// model is the shell around a screen: it reads, runs and draws.
type model struct {
	app   *command.App
	svc   *command.Services
	every time.Duration
	ctx   context.Context //nolint:containedctx // of the program, which has no call to pass it in
	s     screen
	// asked is the query that is being read: what another one answers is not shown.
	asked query
}

type (
	// answer is what a look at the fleet gave.
	answer struct {
		query   query
		picture *picture
		err     error
	}
	// due is the time for the next look.
	due struct{}
	// ran is the end of a command.
	ran struct{ err error }
)

// Init starts looking.
func (m *model) Init() tea.Cmd { return m.wait() }

func (m *model) wait() tea.Cmd { return tea.Tick(m.every, func(time.Time) tea.Msg { return due{} }) }

func (m *model) look() tea.Cmd {
	q := m.s.query
	m.asked = q
	return func() tea.Msg {
		p, err := m.read(q)
		return answer{q, p, err}
	}
}

// Update applies an event.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.s.now = m.app.Now()
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.s.width, m.s.height = msg.Width, msg.Height
	case due:
		return m, tea.Batch(m.look(), m.wait())
	case answer:
		m.answered(msg)
	case ran:
		if msg.err != nil {
			m.s.refused = "it could not be run: " + msg.err.Error()
		}
		return m, m.look()
	case tea.KeyPressMsg:
		return m, m.pressed(msg)
	}
	return m, nil
}

func (m *model) answered(a answer) {
	switch {
	case a.query != m.asked:
	case apiclient.Reason(a.err) == pb.Reason_INVALID_FILTER:
		m.s.refused, m.s.query.filter = command.ErrorText(a.err), ""
	case a.err != nil:
		m.s.failure = command.ErrorText(a.err)
	default:
		m.s.take(*a.picture)
	}
}

func (m *model) pressed(msg tea.KeyPressMsg) tea.Cmd {
	e := m.s.key(msg.String(), msg.Key().Text)
	switch {
	case e.quit:
		return tea.Quit
	case e.run != "":
		return m.start(e.run)
	case e.read:
		return m.look()
	}
	return nil
}

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView(m.s.text())
	v.AltScreen = true
	v.WindowTitle = "ingot top"
	return v
}

// read looks at the fleet.
func (m *model) read(q query) (*picture, error) {
	ctx, cancel := context.WithTimeout(m.ctx, readWithin)
	defer cancel()
	p := &picture{}
	var err error
	if p.server, err = m.svc.Admin.GetServerInfo(ctx, &pb.GetServerInfoRequest{}); err != nil {
		return nil, err
	}
	list, err := m.svc.Machines.ListMachines(ctx,
		&pb.ListMachinesRequest{Filter: q.filter, OrderBy: orders[q.order], PageSize: mostMachines})
	if apiclient.Reason(err) == pb.Reason_SELECTION_TOO_NARROW { // a user who sees only some machines has only one order
		list, err = m.svc.Machines.ListMachines(ctx, &pb.ListMachinesRequest{Filter: q.filter, PageSize: mostMachines})
	}
	if err != nil {
		return nil, err
	}
	p.machines, p.total = list.GetMachines(), list.GetTotalSize()
	p.counts, err = m.svc.Machines.CountMachines(ctx,
		&pb.CountMachinesRequest{Filter: q.filter, GroupBy: []string{"effective_state"}})
	if err != nil && apiclient.Reason(err) != pb.Reason_SELECTION_TOO_NARROW {
		return nil, err
	}
	if q.open != "" {
		p.why, err = m.svc.Machines.ExplainMachine(ctx, &pb.ExplainMachineRequest{MachineId: q.open})
		if err != nil {
			return nil, err
		}
	}
	p.at = m.app.Now()
	return p, nil
}

// start runs a command of ingot in the terminal, with this connection, until it ends and Enter is pressed.
func (m *model) start(line string) tea.Cmd {
	args, err := words(line)
	if err != nil {
		m.s.refused = err.Error()
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		m.s.refused = "this program does not find itself: " + err.Error()
		return nil
	}
	c := &child{Cmd: exec.CommandContext(m.ctx, self, append(m.app.ConnectionArgs(), args...)...), line: line}
	return tea.Exec(c, func(err error) tea.Msg { return ran{err} })
}

// child is a command that has the terminal.
type child struct {
	*exec.Cmd
	line string
}

// SetStdin is part of tea.ExecCommand.
func (c *child) SetStdin(r io.Reader) { c.Stdin = r }

// SetStdout is part of tea.ExecCommand.
func (c *child) SetStdout(w io.Writer) { c.Stdout = w }

// SetStderr is part of tea.ExecCommand.
func (c *child) SetStderr(w io.Writer) { c.Stderr = w }

// Run is part of tea.ExecCommand. The exit code of the command is for people to read, and no error of this program.
func (c *child) Run() error {
	_, _ = fmt.Fprintf(c.Stdout, "$ %s\n", c.line) // the terminal; what fails here fails below
	err := c.Cmd.Run()
	code := c.ProcessState.ExitCode()
	if c.ProcessState != nil {
		err = nil
	}
	_, _ = fmt.Fprintf(c.Stdout, "\n(exit code %d; Enter goes back to the fleet) ", code) // as above
	_, _ = bufio.NewReader(c.Stdin).
		ReadString('\n')
		// the terminal that ends is no reason to fail
	return err
}
