package command

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ingot-metal/ingot/cli/times"
	"github.com/ingot-metal/ingot/cli/view"
)

// FilterFlags build the filter of a list of operations or runs.
type FilterFlags struct {
	machine, opType, phase, filter string
	Limit                          int
}

// Register adds the flags to a command; --limit where limit is not negative.
func (f *FilterFlags) Register(a *App, cmd *cobra.Command, limit int) {
	cmd.Flags().StringVar(&f.machine, "machine", "", "only this machine")
	cmd.Flags().StringVar(&f.opType, "type", "", "only this type, such as REBOOT")
	cmd.Flags().StringVar(&f.phase, "phase", "", "only this phase, such as RUNNING")
	cmd.Flags().StringVar(&f.filter, "filter", "", "further terms, such as created_after=2026-01-01T00:00:00Z")
	if limit >= 0 {
		cmd.Flags().IntVar(&f.Limit, "limit", limit, "at most so many, newest first; 0 is all")
	}
	a.Must(cmd.RegisterFlagCompletionFunc("machine", a.CompleteMachines()))
	Fixed(cmd, "phase", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED")
}

// String is the filter that the flags stand for.
func (f *FilterFlags) String() string {
	return JoinFilter("machine_id", f.machine, "type", strings.ToUpper(f.opType), "phase", strings.ToUpper(f.phase), "",
		f.filter)
}

// Narrow is the flags that filter and sort a short list, by the fields of its rows.
type Narrow struct{ Filter, OrderBy string }

// Register adds the flags to a command, with a term and an order as examples.
func (n *Narrow) Register(cmd *cobra.Command, term, order string) {
	cmd.Flags().StringVar(&n.Filter, "filter", "", "terms of the fields that -o json shows, such as "+term)
	cmd.Flags().StringVar(&n.OrderBy, "order-by", "", `one of these fields, such as "`+order+`"`)
}

// JoinFilter joins key=value terms and leaves out those without a value; without a key the value is a term.
func JoinFilter(pairs ...string) string {
	var terms []string
	for i := 0; i+1 < len(pairs); i += 2 {
		switch {
		case pairs[i+1] == "":
		case pairs[i] == "":
			terms = append(terms, pairs[i+1])
		default:
			terms = append(terms, pairs[i]+"="+pairs[i+1])
		}
	}
	return strings.Join(terms, ",")
}

// Moment reads a time, a time of day, or how long ago it was; nil for none. A time without an offset is in the zone of
// the output.
func (a *App) Moment(flag, s string) (*timestamppb.Timestamp, error) {
	if s == "" {
		return nil, nil
	}
	now := a.Config.Clock.Now()
	if t, ok := times.ParseTime(s, now); ok {
		return timestamppb.New(t), nil
	}
	ago, err := time.ParseDuration(s)
	if err != nil || ago < 0 {
		return nil, Usagef("%s %q: want RFC 3339, such as 2026-03-01T12:00:00Z, a time of day, such as 03:12 or 03:12Z, "+
			"or how long ago, such as 90m", flag, s)
	}
	return timestamppb.New(now.Add(-ago)), nil
}

// AsOf is the flag that has a command show the machines of a moment.
type AsOf struct{ text string }

// Register adds the flag.
func (f *AsOf) Register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "as-of", "",
		"the machines as they were at this time: RFC 3339, a time of day, such as 03:12 in the zone of the output, "+
			"03:12Z or 03:12+01:00, or so long ago, such as 2h")
}

// Read returns the moment of --as-of and prints it; nil where none was given.
func (f *AsOf) Read(a *App) (*timestamppb.Timestamp, error) {
	at, err := a.Moment("--as-of", f.text)
	if at != nil {
		a.Note("As of %s (%s):", view.Time(at), a.zoneName(at.AsTime()))
	}
	return at, err
}

// zoneName names the zone of the output at a moment, as its users call it: "CET", "UTC".
func (a *App) zoneName(at time.Time) string {
	name, _ := at.In(times.Zone()).Zone()
	return name
}

// EnumName is a name of the API for what a person types.
func EnumName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }
