package command

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/view"
)

// PrintError writes an error, the fields at fault and what to do next.
func (a *App) PrintError(err error) {
	if err.Error() == "" {
		return
	}
	style := a.style(a.Config.ErrTerminal)
	var b strings.Builder
	b.WriteString(style.Bad("error:") + " " + lines(ErrorText(err)) + "\n")
	for _, v := range apiclient.Violations(err) {
		fmt.Fprintf(&b, "  %s: %s\n", view.Clean(v.GetField()), view.Clean(v.GetDescription()))
	}
	if hint := a.hint(err); hint != "" {
		b.WriteString(style.Dim("hint: ") + hint + "\n")
	}
	// Err is the last place to report to; if it is gone the exit code still speaks.
	_, _ = a.Config.Err.Write([]byte(b.String()))
}

// lines cleans a text of several lines, each by itself: what follows the first stands under it.
func lines(text string) string {
	var clean []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		clean = append(clean, view.Clean(strings.TrimRight(line, "\r\n")))
	}
	return strings.Join(clean, "\n  ")
}

// ErrorText is "message (REASON)"; without a reason the gRPC code stands in its place.
func ErrorText(err error) string {
	if info := apiclient.Info(err); info != nil {
		return status.Convert(err).Message() + " (" + info.GetReason() + ")"
	}
	var own *ExitError
	if errors.As(err, &own) {
		return err.Error()
	}
	switch ExitCode(err) {
	case exitTimeout:
		return "timed out"
	case ExitInterrupted:
		return "interrupted"
	}
	st, ok := status.FromError(err)
	if !ok {
		return err.Error()
	}
	return st.Message() + " (" + codeName(st.Code()) + ")"
}

// codeName writes a code as the gRPC documentation does: FAILED_PRECONDITION.
func codeName(c codes.Code) string {
	var b strings.Builder
	for i, r := range c.String() {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

// hint is the next step for an error, empty when there is none to give.
func (a *App) hint(err error) string {
	info := apiclient.Info(err)
	if text, ok := hints[apiclient.Reason(err)]; ok {
		return a.fill(text, info.GetMetadata())
	}
	if errors.Is(err, client.ErrNoServer) {
		return "ingot config set-context NAME --server HOST:PORT --ca-file FILE --token-file FILE"
	}
	return hintsByCode[status.Code(err)]
}

// fill fills the known ids into a hint. The server's word on an id wins over the command line's.
func (a *App) fill(text string, known map[string]string) string {
	pick := func(fallback string, candidates ...string) string {
		for _, c := range candidates {
			if c != "" {
				return view.Clean(c)
			}
		}
		return fallback
	}
	return strings.NewReplacer(
		"{machine}", pick("MACHINE", known["machine_id"], a.Subject.Machine),
		"{operation}", pick("OPERATION", known["operation_id"], known["active_operation_id"], a.Subject.Operation),
		"{command}", pick("COMMAND", known["command_id"], known["unresolved_command_id"]),
	).Replace(text)
}
