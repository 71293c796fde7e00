package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/times"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/internal/label"
)

// picture is what was read of the fleet at one moment.
type picture struct {
	server *pb.ServerInfo
	// counts of the machines that match by effective state; nil where the caller may not count.
	counts   *pb.CountMachinesResponse
	machines []*pb.Machine
	// total is how many match; 0 where they were not counted.
	total int32
	// why is of the machine that is open, nil where none is.
	why *pb.ExplainMachineResponse
	at  time.Time
}

// query is the filter and the order of a request.
type query struct {
	filter string
	order  int // an index of orders
	open   string
}

// orders are those of the list, the first at the start.
var orders = []string{"effective_state", "machine_id", "rack", "site", "updated_at desc"}

// mode is what keys mean.
type mode int

const (
	listing mode = iota
	filtering
	opened
	confirming
	helping
)

// screen is all that is shown, and decides what keys do. It reads nothing and runs nothing.
type screen struct {
	style         view.Style
	width, height int
	now           time.Time

	query   query
	picture picture
	// failure is why the picture could not be read again; the picture is an old one then.
	failure string
	// refused is what became of a filter or an action that cannot be.
	refused string

	mode   mode
	cursor int
	scroll int
	typed  string
	chosen string // the command that waits for a yes
}

// effect is what the program has to do after a key.
type effect struct {
	quit, read bool
	// run is a command line of ingot.
	run string
}

const helpText = `
  j k ↓ ↑ g G    move                     Enter   why, and what may be done
  /              filter                   o       next order
  r              read now                 q       leave
  In a machine: a digit runs that action, after a yes; Esc goes back.
`

// key is what a key does.
func (s *screen) key(name, text string) effect {
	if name == "ctrl+c" {
		return effect{quit: true}
	}
	s.refused = ""
	switch s.mode {
	case filtering:
		return s.keyFilter(name, text)
	case opened:
		return s.keyOpened(name)
	case confirming:
		s.mode = opened
		if name == "y" {
			return effect{run: s.chosen}
		}
		return effect{}
	case helping:
		s.mode = listing
		return effect{}
	case listing:
	}
	return s.keyList(name)
}

func (s *screen) keyList(name string) effect {
	last := max(0, len(s.picture.machines)-1)
	switch name {
	case "q":
		return effect{quit: true}
	case "j", "down":
		s.cursor++
	case "k", "up":
		s.cursor--
	case "pgdown", "space":
		s.cursor += s.rows()
	case "pgup":
		s.cursor -= s.rows()
	case "g", "home":
		s.cursor = 0
	case "G", "end":
		s.cursor = last
	case "/":
		s.mode, s.typed = filtering, s.query.filter
	case "o":
		s.query.order = (s.query.order + 1) % len(orders)
		s.cursor = 0
		return effect{read: true}
	case "r":
		return effect{read: true}
	case "?", "h":
		s.mode = helping
	case "enter":
		if len(s.picture.machines) == 0 {
			return effect{}
		}
		s.mode, s.scroll = opened, 0
		s.query.open, s.picture.why = s.picture.machines[s.cursor].GetMachineId(), nil
		return effect{read: true}
	}
	s.cursor = min(max(s.cursor, 0), last)
	return effect{}
}

func (s *screen) keyFilter(name, text string) effect {
	switch name {
	case "enter":
		s.mode, s.query.filter, s.cursor = listing, strings.TrimSpace(s.typed), 0
		return effect{read: true}
	case "esc":
		s.mode = listing
	case "ctrl+u":
		s.typed = ""
	case "backspace":
		if r := []rune(s.typed); len(r) > 0 {
			s.typed = string(r[:len(r)-1])
		}
	default:
		s.typed += view.Clean(text)
	}
	return effect{}
}

func (s *screen) keyOpened(name string) effect {
	switch name {
	case "esc", "q", "left", "backspace":
		s.mode, s.query.open, s.picture.why = listing, "", nil
	case "j", "down":
		s.scroll++
	case "k", "up":
		s.scroll = max(0, s.scroll-1)
	case "r":
		return effect{read: true}
	default:
		return s.choose(name)
	}
	return effect{}
}

// choose takes the action with the digit. What changes something is asked for once more, by its full text.
func (s *screen) choose(name string) effect {
	actions := s.picture.why.GetActions()
	if len(name) != 1 || name[0] < '1' || int(name[0]-'1') >= len(actions) {
		return effect{}
	}
	command := actions[name[0]-'1'].GetCommand()
	if _, err := words(command); err != nil {
		s.refused = err.Error()
		return effect{}
	}
	s.mode, s.chosen = confirming, command
	return effect{}
}

// words are the arguments of a command line of ingot that can be run as it stands.
func words(command string) ([]string, error) {
	args := strings.Fields(command)
	if len(args) < 2 || args[0] != "ingot" {
		return nil, fmt.Errorf("this is nothing that can be run here: %s", view.Clean(command))
	}
	for _, w := range args[1:] {
		if strings.ContainsAny(w, "'\"`$\\") || isBlank(w) {
			return nil, fmt.Errorf("%s is for you to fill in; in a shell: %s", view.Clean(w), view.Clean(command))
		}
	}
	return args[1:], nil
}

// isBlank reports whether a word stands for something that a person knows, such as NAME or ID.
func isBlank(w string) bool {
	return len(w) > 1 && strings.ToUpper(w) == w && strings.ToLower(w) != w && !strings.ContainsAny(w, "0123456789")
}

// take is a new picture. The cursor stays on its machine, wherever that has moved.
func (s *screen) take(p picture) {
	on := ""
	if s.cursor < len(s.picture.machines) {
		on = s.picture.machines[s.cursor].GetMachineId()
	}
	s.picture, s.failure = p, ""
	at := slices.IndexFunc(p.machines, func(m *pb.Machine) bool { return m.GetMachineId() == on })
	if at >= 0 {
		s.cursor = at
	}
	s.cursor = min(max(s.cursor, 0), max(0, len(p.machines)-1))
}

// around is how many lines are above and below the rows.
const around = 5

func (s *screen) rows() int { return max(1, s.height-around) }

// text is the whole screen, no line wider than it and no more lines than it has.
func (s *screen) text() string {
	lines := s.head()
	switch s.mode {
	case helping:
		lines = append(lines, strings.Split(helpText, "\n")...)
	case opened, confirming:
		lines = append(lines, s.machine()...)
	case listing, filtering:
		lines = append(lines, s.list()...)
	}
	lines = lines[:min(len(lines), max(0, s.height-1))]
	for len(lines) < s.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, s.foot())
	for i, l := range lines {
		lines[i] = cut(l, s.width)
	}
	return strings.Join(lines, "\n")
}

func (s *screen) head() []string {
	p := s.picture
	first := s.style.Bold("ingot top") + "  " + view.Clean(p.server.GetControllerId())
	if !p.at.IsZero() {
		first += "  " + times.ClockOf(p.at)
	}
	lines := []string{first + "  " + s.totals()}
	switch {
	case s.failure != "" && p.at.IsZero():
		lines = append(lines, s.style.Bad("nothing could be read: "+view.Clean(s.failure)))
	case s.failure != "":
		lines = append(lines, s.style.Bad("NOT CURRENT for "+view.Duration(s.now.Sub(p.at).Truncate(time.Second))+": "+
			view.Clean(s.failure)))
	case p.server.GetFrozenSince() != nil:
		lines = append(lines, s.style.Bad("FROZEN for "+view.Age(p.server.GetFrozenSince(), s.now)+": "+
			view.Clean(p.server.GetFrozenBecause())+"  → ingot server thaw"))
	default:
		lines = append(lines, "")
	}
	return lines
}

// shown is the style of states: without colours while the picture is out of date.
func (s *screen) shown() view.Style {
	if s.failure != "" {
		return view.Style{Now: s.now}
	}
	return view.Style{Colour: s.style.Colour, Now: s.now}
}

func (s *screen) totals() string {
	if s.picture.counts == nil {
		if s.picture.total > 0 {
			return machines(s.picture.total)
		}
		return ""
	}
	by := map[string]int32{}
	for _, g := range s.picture.counts.GetGroups() {
		by[g.GetValues()[0]] += g.GetCount()
	}
	text := machines(s.picture.counts.GetTotal())
	for _, state := range []string{"BLOCKED", "ATTENTION", "BUSY", "MAINTENANCE", "NEW", "IDLE"} {
		if by[state] > 0 {
			text += fmt.Sprintf("  %s %d", s.shown().State(state), by[state])
		}
	}
	return text
}

func machines(n int32) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}

func (s *screen) list() []string {
	if len(s.picture.machines) == 0 && !s.picture.at.IsZero() {
		if s.query.filter != "" {
			return []string{"", "No machine matches " + view.Clean(s.query.filter) + ". / changes the filter."}
		}
		return []string{"", "There is no machine yet. The first one: ingot rack import FILE, or ingot discover --bmc CIDR"}
	}
	first := min(max(0, s.cursor-s.rows()+1), max(0, len(s.picture.machines)-1))
	t := &view.Table{Header: []string{" MACHINE", "STATE", "RACK", "OPERATION", "WHY"}}
	for i, m := range s.picture.machines[first:min(first+s.rows(), len(s.picture.machines))] {
		mark := " "
		if first+i == s.cursor {
			mark = ">"
		}
		st := m.GetStatus()
		why := st.GetAttentionReason()
		if why != "" {
			why += ": " + view.Clean(st.GetAttentionMessage())
		}
		rack := label.RackOf(m.GetSpec().GetRack(), m.GetLabels())
		t.Add(mark+m.GetMachineId(), s.shown().Effective(m), view.Clean(rack),
			st.GetActiveOperationId(), why)
	}
	return strings.Split(strings.TrimSuffix(t.String(), "\n"), "\n")
}

func (s *screen) machine() []string {
	w := s.picture.why
	if w == nil {
		return []string{"", s.query.open + ": reading …"}
	}
	lines := strings.Split(strings.TrimSuffix(s.shown().Explain(w), "\n"), "\n")
	if n := len(w.GetActions()); n > 0 { // the digits come before the commands, two lines each at the end
		for i := range min(n, 9) {
			at := len(lines) - 2*n + 2*i
			lines[at] = fmt.Sprintf("%d", i+1) + strings.TrimPrefix(lines[at], " ")
		}
	}
	s.scroll = min(s.scroll, max(0, len(lines)-s.rows()))
	return lines[s.scroll:]
}

func (s *screen) foot() string {
	switch {
	case s.mode == confirming:
		return s.style.Warn("Run  " + view.Clean(s.chosen) + "  ? y runs it, any other key does not")
	case s.mode == filtering:
		return "/" + s.typed + "▏  Enter applies, Esc leaves it; such as state=ATTENTION or rack=r4*"
	case s.refused != "":
		return s.style.Warn(s.refused)
	case s.mode == opened:
		return s.style.Dim("Esc back   1-9 run an action   j k scroll")
	}
	text := "? help   / filter"
	if s.query.filter != "" {
		text += " " + view.Clean(s.query.filter)
	}
	text += "   o by " + orders[s.query.order]
	if n := len(s.picture.machines); int(s.picture.total) > n {
		text += fmt.Sprintf("   the first %d of %d", n, s.picture.total)
	}
	return s.style.Dim(text)
}

// cut shortens a line to so many columns. Escape sequences take none and are kept.
func cut(line string, columns int) string {
	if view.Width(line) <= columns {
		return line
	}
	var b strings.Builder
	used, escaped, full := 0, false, false
	for _, r := range line {
		switch {
		case escaped:
			escaped = r != 'm'
		case r == '\x1b':
			escaped = true
		case full:
			continue
		case used+view.Width(string(r)) >= columns:
			full, r = true, '…'
		default:
			used += view.Width(string(r))
		}
		b.WriteRune(r)
	}
	return b.String()
}
