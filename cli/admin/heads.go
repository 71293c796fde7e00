package admin

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/encode"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) auditHeadsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "heads [MACHINE…]",
		Short: "Print the last hash of each history, to be kept elsewhere",
		Long: `Verify the histories of all machines, or of the ones that are named, and print the number of entries, the last
hash and its time: JSON, one history a line. Keep the output where nobody can reach it who can write to the database:
"ingot audit verify --heads FILE" finds by it what was cut off at an end, and machines that are gone.

Where a history is at fault nothing is printed, and the exit code is 5.`,
		Example:           "  ingot audit heads >heads-2026-11-28.json",
		ValidArgsFunction: a.app.CompleteMachines(),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := a.verify(cmd.Context(), args, nil)
			if err != nil {
				return err
			}
			if bad := faulty(all.GetVerdicts()); len(bad) > 0 {
				a.app.Note("%s", a.app.Style().Verdicts(all.GetVerdicts(), bad, len(bad)))
				return brokenHistories(len(bad), len(all.GetVerdicts()))
			}
			for _, v := range all.GetVerdicts() {
				line, err := encode.Line(&pb.HistoryHead{MachineId: v.GetMachineId(), Entries: v.GetEntries(),
					HeadHash: v.GetHeadHash(), HeadAt: v.GetHeadAt()})
				if err != nil {
					return err
				}
				if err := a.app.Write(string(line) + "\n"); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func brokenHistories(bad, all int) error {
	return &command.ExitError{
		Code: command.ExitFailed,
		Err:  fmt.Errorf("%d of %d histories are not as they were written", bad, all),
	}
}

// readHeads reads the output of `ingot audit heads`; of some machines, or of all where none is named.
func readHeads(path string, machines []string) (heads []*pb.HistoryHead, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read heads: %w", err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		h := &pb.HistoryHead{}
		if err := protojson.Unmarshal(lines.Bytes(), h); err != nil {
			return nil, fmt.Errorf("read heads: line %d of %s is not one of `ingot audit heads`: %w", n, path, err)
		}
		if len(machines) == 0 || slices.Contains(machines, h.GetMachineId()) {
			heads = append(heads, h)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read heads: %w", err)
	}
	if len(heads) == 0 {
		return nil, fmt.Errorf("read heads: %s has none of these histories", path)
	}
	return heads, nil
}

// headsAtOnce is how many heads one call compares.
const headsAtOnce = 200

// compareHeads adds what the kept heads show to the verdicts. A head that a restore explains is only noted.
func (a commands) compareHeads(ctx context.Context, heads []*pb.HistoryHead, all *pb.VerifyTimelineResponse) error {
	svc := a.app.Services()
	verdicts := map[string]*pb.TimelineVerdict{}
	for _, v := range all.GetVerdicts() {
		verdicts[v.GetMachineId()] = v
	}
	for lot := range slices.Chunk(heads, headsAtOnce) {
		resp, err := svc.Admin.GetHeadVerdicts(ctx, &pb.GetHeadVerdictsRequest{Heads: lot})
		if err != nil {
			return err
		}
		for _, h := range resp.GetVerdicts() {
			v := verdicts[h.GetMachineId()]
			switch {
			case h.GetFinding() == pb.HeadFinding_HEAD_FINDING_KEPT:
				continue
			case h.GetFinding() == pb.HeadFinding_HEAD_FINDING_RESTORED:
				a.app.Note("%s: %s", historyOf(h.GetMachineId()), view.Clean(h.GetWhy()))
				continue
			case v == nil:
				v = &pb.TimelineVerdict{MachineId: h.GetMachineId()}
				verdicts[h.GetMachineId()] = v
				all.Verdicts = append(all.Verdicts, v)
			}
			v.Ok = false
			v.Differences = append(v.Differences, "head that was kept: "+h.GetWhy())
		}
	}
	return nil
}

func historyOf(machineID string) string {
	if machineID == "" {
		return "(fleet)"
	}
	return machineID
}
