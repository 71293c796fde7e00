package cli

import (
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"
	"strings"
	"time"
)

// filterFlags build the filter of a list of operations or runs.
type filterFlags struct {
	machine, opType, phase, filter string
	limit                          int
}

func (f *filterFlags) register(a *app, cmd *cobra.Command, limit int) {
	cmd.Flags().StringVar(&f.machine, "machine", "", "only this machine")
	cmd.Flags().StringVar(&f.opType, "type", "", "only this type, such as REBOOT")
	cmd.Flags().StringVar(&f.phase, "phase", "", "only this phase, such as RUNNING")
	cmd.Flags().StringVar(&f.filter, "filter", "", "further terms, such as created_after=2026-01-01T00:00:00Z")
	if limit >= 0 {
		cmd.Flags().IntVar(&f.limit, "limit", limit, "at most so many, newest first; 0 is all")
	}
	a.must(cmd.RegisterFlagCompletionFunc("machine", a.completeMachines()))
	fixed(cmd, "phase", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED")
}

func (f *filterFlags) String() string {
	return joinFilter("machine_id", f.machine, "type", strings.ToUpper(f.opType), "phase", strings.ToUpper(f.phase), "",
		f.filter)
}

// joinFilter joins key=value terms and leaves out those without a value; without a key the value is a term.
func joinFilter(pairs ...string) string {
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

// moment reads a time, or how long ago it was; nil for none.
func (a *app) moment(flag, s string) (*timestamppb.Timestamp, error) {
	if s == "" {
		return nil, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return timestamppb.New(t), nil
	}
	ago, err := time.ParseDuration(s)
	if err != nil || ago < 0 {
		return nil, usagef("%s %q: want RFC 3339, such as 2026-03-01T12:00:00Z, or how long ago, such as 90m", flag, s)
	}
	return timestamppb.New(a.cfg.Clock.Now().Add(-ago)), nil
}

// enumName is a name of the API for what a person types.
func enumName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }
