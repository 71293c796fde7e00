package work

import (
	"time"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// rolloutSpec reads the file, if there is one, and lays the flags over it.
func (a commands) rolloutSpec(r *rolloutFlags) (*pb.RolloutSpec, error) {
	out := &pb.RolloutSpec{}
	if r.file != "" {
		if err := a.app.ReadMessage(r.file, out); err != nil {
			return nil, err
		}
	}
	s := &r.spec
	s.Percents = r.percents
	s.WaveGate, s.TotalGate = r.gates()
	if r.soak != "" {
		d, err := time.ParseDuration(r.soak)
		if err != nil {
			d = -1
		}
		if s.SoakSeconds, err = command.Seconds("--soak", d, 0); err != nil {
			return nil, err
		}
	}
	if r.image != "" {
		if s.Params == nil {
			s.Params = map[string]string{}
		}
		s.Params["image_ref"] = r.image
	}
	overlay(out, s)
	if out.GetFilter() == "" && out.GetSelectionId() == "" {
		return nil, command.Usagef("--filter is required: which machines, such as site=berlin or labels.rack=r42")
	}
	return out, nil
}

// overlay sets every field of to that is set in from. Lists are taken whole, maps key by key.
func overlay(to, from *pb.RolloutSpec) {
	src, dst := from.ProtoReflect(), to.ProtoReflect()
	for i := range src.Descriptor().Fields().Len() {
		fd := src.Descriptor().Fields().Get(i)
		if !src.Has(fd) {
			continue
		}
		if !fd.IsMap() {
			dst.Set(fd, src.Get(fd))
		}
	}
	for k, v := range from.GetParams() {
		if to.Params == nil {
			to.Params = map[string]string{}
		}
		to.Params[k] = v
	}
}

func (a commands) rolloutWatchCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "watch ROLLOUT",
		Short: "Show a rollout until it has ended",
		Long: `Show a rollout live, with a bar for each wave; with -o json one JSON document for each
change. Interrupting the view does not stop the rollout. Exit code 0 when it has SUCCEEDED, 5
FAILED or COMPLETED_WITH_FAILURES, 6 CANCELED.`,
		Example: `  ingot rollout watch ro-01k
  ingot rollout watch ro-01k -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.completeRollouts()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			// A wrong address, token or id is found here, before the watch starts to be patient.
			if _, err := svc.Rollouts.GetRollout(cmd.Context(), &pb.GetRolloutRequest{RolloutId: args[0]}); err != nil {
				return err
			}
			return a.app.WatchRollout(cmd.Context(), svc, args[0])
		}),
	}
}
