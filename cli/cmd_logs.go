package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/follow"
	"github.com/ingot-metal/ingot/cli/view"
)

var errTooLate = errors.New("the operation succeeded before the request to cancel took effect")

func (a *app) logsCmd() *cobra.Command {
	var noFollow, raw bool
	cmd := &cobra.Command{
		Use:   "logs OPERATION",
		Short: "Print an operation's log and follow it",
		Long: `Print the log of an operation and follow it until the operation ends. --raw writes the
bytes as the machine sent them, without tags; don't point that at a terminal if you don't trust the
machine.`,
		Example: `  ingot logs op-01k
  ingot logs op-01k --no-follow --raw > op.log`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeAt(a.completeOperations()),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.subject.operation = args[0]
			svc, err := a.services()
			if err != nil {
				return err
			}
			return a.printLog(cmd.Context(), raw, follow.LogConfig{
				Open: follow.OperationLog(svc.operations, args[0], noFollow),
				Complete: func(ctx context.Context) (bool, error) {
					op, err := svc.operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: args[0]})
					return noFollow || view.Finished(op), err
				},
			})
		},
	}
	cmd.Flags().BoolVar(&noFollow, "no-follow", false, "stop after what is stored")
	cmd.Flags().BoolVar(&raw, "raw", false, "the bytes as they are")
	return cmd
}

func (a *app) printLog(ctx context.Context, raw bool, cfg follow.LogConfig) error {
	cfg.Clock = a.cfg.Clock
	cfg.Lost = func() { a.note("! connection lost, retrying…") }
	return follow.Log(ctx, cfg, func(c *pb.LogChunk) error {
		if raw {
			return a.write(string(c.GetData()))
		}
		return a.stream(c, func() string { return a.logLines(c) }, c.GetOperationId())
	})
}

func (a *app) logLines(c *pb.LogChunk) string {
	var b strings.Builder
	for line := range strings.Lines(string(c.GetData())) {
		b.WriteString(a.style().LogLine(c, strings.TrimRight(line, "\r\n")))
	}
	return b.String()
}

// stream writes one message of a stream: a line of JSON, a YAML document, a name, or text.
func (a *app) stream(m proto.Message, text func() string, name string) error {
	switch a.flags.output {
	case "json":
		line, err := view.Decoded(m)
		if err != nil {
			return err
		}
		return a.write(string(line) + "\n")
	case "yaml":
		doc, err := view.YAML(m)
		if err != nil {
			return err
		}
		return a.write("---\n" + string(doc))
	case "name":
		return a.write(name + "\n")
	}
	return a.write(text())
}
