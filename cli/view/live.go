package view

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// LiveConfig is what the terminal of a live view can show.
type LiveConfig struct {
	Style Style
	// Boxed draws boxes and holds progress back for the status line; without it every line stands for itself,
	// as a log file wants it.
	Boxed bool
}

// Live renders one operation while it runs. Feed it events and log chunks in the order they arrive; it returns the text
// to print. It keeps just enough to draw the status line and to list the changes at the end.
type Live struct {
	cfg     LiveConfig
	step    string
	since   time.Time
	percent int
	message string
	waiting string
}

// NewLive makes a view of one operation.
func NewLive(cfg LiveConfig) *Live { return &Live{cfg: cfg} }

// Header introduces the operation. The machine is as it was before the operation and may be nil.
func (l *Live) Header(op *pb.Operation, before *pb.Machine) string {
	s := l.cfg.Style
	if !l.cfg.Boxed {
		return s.OperationLine(op)
	}
	name := op.GetMachineId()
	if before.GetStatus().GetSimulated() {
		name += s.Warn(" (simulated)")
	}
	lines := []string{
		"Operation: " + op.GetOperationId(),
		"Machine: " + name,
		"Type: " + s.Bold(opType(op.GetType())),
	}
	if before != nil {
		lines = append(lines, "Phase: "+Phase(before.GetStatus().GetPhase())+" → EffectiveState: "+
			s.effective(during(op, before)))
	}
	return box(lines) + "\n"
}

// during is the effective state while the operation runs; first match wins, as on the server.
func during(op *pb.Operation, before *pb.Machine) pb.MachineStatus_EffectiveState {
	e := before.GetStatus().GetEffectiveState()
	if Finished(op) || e == pb.MachineStatus_BLOCKED || e == pb.MachineStatus_ATTENTION {
		return e
	}
	return pb.MachineStatus_BUSY
}

// Event returns the line for an event; none for events that the header or the result already show.
func (l *Live) Event(ev *pb.OperationEvent) string {
	l.note(ev.GetSnapshot())
	s, text := l.cfg.Style, l.text(ev)
	switch ev.GetKind() {
	case "created", "started", "succeeded", "failed", "canceled":
		return ""
	case "step_started":
		l.begin(ev)
		return s.Bold("→ "+ellipsis(text)) + "\n"
	case "step_succeeded":
		took := l.stepTime(ev)
		l.end()
		return s.Good("✓ "+text) + s.Dim(took) + l.gap()
	case "step_failed":
		l.end()
		return s.Bad("✗ "+text) + l.gap()
	case "step_retrying":
		return s.Warn("↻ "+text) + "\n"
	case "waiting":
		return s.Dim("… "+l.wait(ev)) + "\n"
	case "cancel_requested":
		return s.Warn("! "+fallback(ev.GetMessage(), "cancel requested, stopping at the next safe point")) + "\n"
	case "settled":
		return s.Warn("! "+fallback(ev.GetMessage(), "settled by an operator")) + "\n"
	}
	if ev.GetMessage() == "" || Finished(ev.GetSnapshot()) {
		return ""
	}
	return "→ " + text + "\n"
}

func (l *Live) gap() string {
	if l.cfg.Boxed {
		return "\n\n"
	}
	return "\n"
}

func (l *Live) text(ev *pb.OperationEvent) string {
	return Clean(fallback(ev.GetMessage(), fallback(ev.GetStep(), ev.GetKind())))
}

func (l *Live) wait(ev *pb.OperationEvent) string {
	text := ev.GetMessage()
	if text == "" {
		text = "waiting"
	}
	if r := ev.GetSnapshot().GetWaitReason(); r != "" && !strings.Contains(text, r) {
		text += " (" + r + ")"
	}
	return Clean(text)
}

func (l *Live) begin(ev *pb.OperationEvent) {
	l.step, l.percent, l.message, l.since = fallback(ev.GetStep(), ev.GetMessage()), 0, "", ev.GetTs().AsTime()
}

func (l *Live) end() { l.step, l.percent, l.message, l.waiting = "", 0, "", "" }

// stepTime is the time that the finished step took, when it was long enough to matter.
func (l *Live) stepTime(ev *pb.OperationEvent) string {
	d := ev.GetTs().AsTime().Sub(l.since)
	if l.step == "" || d < 10*time.Second {
		return ""
	}
	return " (" + Duration(d) + ")"
}

func (l *Live) note(op *pb.Operation) {
	l.waiting = op.GetWaitReason()
	if p := int(op.GetProgressPercent()); p > 0 {
		l.percent, l.message = p, op.GetProgressMessage()
	}
}

// Poll takes an operation that was read outside of the event stream; it only moves the status line.
func (l *Live) Poll(op *pb.Operation) { l.note(op) }

var progressLine = regexp.MustCompile(`(?i)^\s*(?:\[[^\]]*\]\s*)?progress:?\s*(\d{1,3})\s*%`)

// Log returns the lines of a chunk, each behind its tag. A chunk ends where a line ends: agents send whole
// lines. Where a status line is drawn, progress reports move its bar instead of filling the screen.
func (l *Live) Log(chunk *pb.LogChunk) string {
	var b strings.Builder
	for line := range strings.Lines(string(chunk.GetData())) {
		line = strings.TrimRight(line, "\r\n")
		if m := progressLine.FindStringSubmatch(line); m != nil && l.cfg.Boxed {
			l.percent, _ = strconv.Atoi(m[1]) // one to three digits always parse
			continue
		}
		b.WriteString(l.cfg.Style.LogLine(chunk, line))
	}
	return b.String()
}

// LogLine is one line of an operation's log as "│ [tag] text".
func (s Style) LogLine(chunk *pb.LogChunk, line string) string {
	line = Clean(line)
	if !strings.HasPrefix(line, "[") && chunk.GetStep() != "" {
		line = "[" + Clean(chunk.GetStep()) + "] " + line
	}
	if chunk.GetStream() == "stderr" {
		line = s.Warn(line)
	}
	return s.Dim("│ ") + line + "\n"
}

// Status is the line that a terminal keeps at the bottom while a step runs; without a newline, empty when
// there is nothing to say.
func (l *Live) Status(now time.Time) string {
	if !l.cfg.Boxed || l.step == "" {
		return ""
	}
	parts := []string{"  " + Clean(l.step)}
	if l.percent > 0 {
		parts = append(parts, Bar(l.percent, 24)+" "+strconv.Itoa(min(l.percent, 100))+"%")
	}
	parts = append(parts, Duration(now.Sub(l.since).Truncate(time.Second)))
	if l.message != "" {
		parts = append(parts, Clean(l.message))
	}
	if l.waiting != "" {
		parts = append(parts, l.waiting)
	}
	return l.cfg.Style.Dim(strings.Join(parts, "  "))
}

// Lost is the one line that an outage of the connection gets.
func (l *Live) Lost() string {
	return l.cfg.Style.Warn("! connection lost, retrying…") + "\n"
}

// Back returns the line for the end of an outage.
func (l *Live) Back() string {
	return l.cfg.Style.Dim("! connected again") + "\n"
}

func ellipsis(text string) string {
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "…") {
		return text
	}
	return text + "…"
}

func fallback(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// NoLog returns the line for a log that cannot be shown.
func (l *Live) NoLog(why string) string {
	return l.cfg.Style.Warn("! log not available: "+Clean(why)) + "\n"
}
