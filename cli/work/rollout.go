package work

import (
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

func (a commands) rolloutCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Run one piece of work on many machines, wave after wave",
		Long: `A rollout runs a plan, or the plan of a type such as REPAVE or REBOOT, on every machine
that a filter matches: first on a few, then on more, at most so many at a time, and at most so many
of each rack or site. It stops when too many have failed.

Look at the preview first: it lists the machines by wave, the steps, what loses data, and the
machines that are refused. Its digest stands for all of that, and create must name it: what you have
seen is what is done.

Which machines belong to a rollout is settled when it is created. One that cannot be worked on any
more when its turn comes is skipped, which is no failure.`,
		Example: `  ingot rollout preview --filter labels.rack=r42 --type REPAVE --image ubuntu-2204 --canary 1 --percents 25,100
  ingot rollout create --filter labels.rack=r42 --type REPAVE --image ubuntu-2204 --canary 1 --percents 25,100 --digest 5f3c…
  ingot rollout watch ro-01k`,
	}
	cmd.AddCommand(a.rolloutPreviewCmd(), a.rolloutCreateCmd(), a.rolloutApproveCmd(), a.rolloutGetCmd(),
		a.rolloutListCmd(),
		a.rolloutMachinesCmd(), a.rolloutWatchCmd(), a.rolloutPauseCmd(), a.rolloutResumeCmd(), a.rolloutCancelCmd())
	return cmd
}

// rolloutFlags say what a rollout is to do.
type rolloutFlags struct {
	file, image string
	soak        string
	spec        pb.RolloutSpec
	wave, total pb.RolloutGate
	percents    []int32
}

func (r *rolloutFlags) register(a commands, cmd *cobra.Command) {
	f, s := cmd.Flags(), &r.spec
	f.StringVarP(&r.file, "file", "f", "", "YAML or JSON file with the spec; flags go before it; - is standard input")
	f.StringVar(&s.SelectionId, "selection", "", "which machines, by a selection instead of a filter")
	f.StringVar(&s.Filter, "filter", "", "which machines, as in ingot list --filter, such as site=berlin,labels.rack=r42")
	f.StringVar(&s.Type, "type", "", "type of the work: REPAVE, REBOOT, UPGRADE, NET_RECONFIG, ENTER_MAINTENANCE, …")
	f.StringVar(&s.PlanId, "plan", "", "plan to run instead of the type's own")
	f.StringVar(&r.image, "image", "", "image to install, as --param image_ref=IMAGE")
	f.StringToStringVar(&s.Params, "param", nil, "parameter as key=value; may be given several times")
	f.Int32Var(&s.Canary, "canary", 0, "machines of the first wave (default: no such wave)")
	f.Int32SliceVar(&r.percents, "percents", nil,
		"how far the waves after it reach, in percent of all machines, such as 10,50,100")
	f.Int32Var(&s.MaxInFlight, "max-in-flight", 0, "machines under work at a time (default: as many as the wave has)")
	f.StringVar(&s.Domain, "domain", "", "what machines can be lost by together: site or label:KEY, such as label:rack")
	f.Int32Var(&s.MaxPerDomain, "max-per-domain", 0,
		"machines under work at a time in each domain (default with --domain: 1)")
	f.Int32Var(&r.total.Failures, "max-failures", 0,
		"stop when so many machines have failed (default, without any other such flag: 1)")
	f.Int32Var(&r.total.Percent, "max-failed-percent", 0, "stop when so many percent of all machines have failed")
	f.Int32Var(&r.wave.Failures, "wave-max-failures", 0, "stop when so many of one wave have failed")
	f.Int32Var(&r.wave.Percent, "wave-max-failed-percent", 0, "stop when so many percent of one wave have failed")
	f.StringVar(&r.soak, "soak", "", "rest between waves, such as 10m")
	f.StringVar(&s.OnGate, "on-gate", "", "what to do when too many have failed: pause (default) or cancel")
	f.BoolVar(&s.RequireApproval, "require-approval", false, "begin only once another administrator has approved")
	f.StringVar(&s.Title, "title", "", "what it is for; shown in lists")
	command.Fixed(cmd, "on-gate", "pause", "cancel")
	command.Fixed(cmd, "type", "REPAVE", "REBOOT", "UPGRADE", "NET_RECONFIG", "JOIN_CLUSTER", "ENTER_MAINTENANCE",
		"EXIT_MAINTENANCE")
	a.app.Must(cmd.RegisterFlagCompletionFunc("plan", a.app.CompletePlans()))
}

func (r *rolloutFlags) gates() (wave, total *pb.RolloutGate) {
	if r.wave.Failures != 0 || r.wave.Percent != 0 {
		wave = &r.wave
	}
	if r.total.Failures != 0 || r.total.Percent != 0 {
		total = &r.total
	}
	return wave, total
}

func (a commands) rolloutPreviewCmd() *cobra.Command {
	var r rolloutFlags
	var all bool
	cmd := &cobra.Command{
		Use:   "preview",
		Short: "Say what a rollout would do, and change nothing",
		Long: `List the machines by wave, the steps of the plan, what loses data, the machines that are
refused and why, and the budgets that would hold it up. The digest at the end stands for all of it.`,
		Example: `  ingot rollout preview --filter site=berlin --type REBOOT --max-in-flight 5
  ingot rollout preview -f rollout.yaml -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := a.rolloutSpec(&r)
			if err != nil {
				return err
			}
			return a.previewRollout(cmd, spec, all)
		},
	}
	r.register(a, cmd)
	cmd.Flags().BoolVar(&all, "all", false, "list every machine, however many there are")
	return cmd
}

// previewRollout shows what a rollout would do.
func (a commands) previewRollout(cmd *cobra.Command, spec *pb.RolloutSpec, all bool) error {
	svc := a.app.Services()
	p, err := svc.Rollouts.PreviewRollout(cmd.Context(), &pb.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		return err
	}
	if err := a.app.Print(p, func() string { return a.app.Style().RolloutPreview(p, all || a.app.Wide(), "") },
		p.GetDigest()); err != nil {
		return err
	}
	return command.ExitByPreview(p, false)
}

func (a commands) rolloutCreateCmd() *cobra.Command {
	var r rolloutFlags
	req := &pb.CreateRolloutRequest{}
	var watch, dry bool
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Begin a rollout that was previewed",
		Long: `Begin a rollout. --digest is that of its preview, made with the same flags: where fleet,
plan or flags are others than they were, nothing is begun. Repeat the command with the same
--request-id to get the same rollout.`,
		Example: `  ingot rollout create --filter site=berlin --type REBOOT --max-in-flight 5 --digest 5f3c…
  ingot rollout create -f rollout.yaml --digest 5f3c… --watch`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if req.Spec, err = a.rolloutSpec(&r); err != nil {
				return err
			}
			if dry {
				return a.previewRollout(cmd, req.GetSpec(), false)
			}
			svc := a.app.Services()
			w := command.WorkFlags{RequestID: req.RequestId}
			req.RequestId = a.app.Request(&w)
			ro, err := svc.Rollouts.CreateRollout(cmd.Context(), req)
			if err != nil {
				return err
			}
			if watch {
				return a.app.WatchRollout(cmd.Context(), svc, ro.GetRolloutId())
			}
			return a.printRollout(ro)
		},
	}
	r.register(a, cmd)
	f := cmd.Flags()
	f.StringVar(&req.Digest, "digest", "", "of the preview")
	f.StringVar(&req.RequestId, "request-id", "", "idempotency key; made and printed when absent")
	f.StringVar(&req.Comment, "comment", "", "why; kept in the audit log only")
	f.BoolVar(&watch, "watch", false, "show it until it has ended")
	f.BoolVar(&dry, "dry-run", false, "begin nothing, and say what would happen, as preview does")
	cmd.MarkFlagsOneRequired("digest", "dry-run")
	return cmd
}

func (a commands) printRollout(r *pb.Rollout) error {
	return a.app.Print(r, func() string { return a.app.Style().Rollout(r) }, r.GetRolloutId())
}

// rolloutAct is a command that does one thing to a rollout.
func (a commands) rolloutAct(
	use, short, long, example string, call func(*cobra.Command, *command.Services, string) (*pb.Rollout, error),
) *cobra.Command {
	return &cobra.Command{
		Use: use + " ROLLOUT", Short: short, Long: long, Example: example, Args: cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.completeRollouts()),
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, args []string) error {
			r, err := call(cmd, svc, args[0])
			if err != nil {
				return err
			}
			return a.printRollout(r)
		}),
	}
}

func (a commands) rolloutGetCmd() *cobra.Command {
	return a.rolloutAct("get", "Show a rollout", `Show a rollout: its state, what it waits for, and its waves.`,
		"  ingot rollout get ro-01k",
		func(cmd *cobra.Command, svc *command.Services, id string) (*pb.Rollout, error) {
			return svc.Rollouts.GetRollout(cmd.Context(), &pb.GetRolloutRequest{RolloutId: id})
		})
}

func (a commands) rolloutApproveCmd() *cobra.Command {
	var digest, comment string
	cmd := a.rolloutAct("approve", "Let a rollout begin that another person has created",
		`Approve a rollout that was created with --require-approval. You must not be the one who has
created it, and you name the digest of what you have looked at: ingot rollout get shows it, ingot
rollout machines the machines.`,
		"  ingot rollout approve ro-01k --digest 5f3c…",
		func(cmd *cobra.Command, svc *command.Services, id string) (*pb.Rollout, error) {
			return svc.Rollouts.ApproveRollout(cmd.Context(),
				&pb.ApproveRolloutRequest{RolloutId: id, Digest: digest, Comment: comment})
		})
	cmd.Flags().StringVar(&digest, "digest", "", "of the rollout")
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log only")
	a.app.Must(cmd.MarkFlagRequired("digest"))
	return cmd
}

func (a commands) rolloutPauseCmd() *cobra.Command {
	var comment string
	cmd := a.rolloutAct("pause", "Start no further machine",
		`Start no further machine until ingot rollout resume. Operations that are under way go on; those
that wait for room in a budget keep waiting.`, `  ingot rollout pause ro-01k --comment "the canary looks odd"`,
		func(cmd *cobra.Command, svc *command.Services, id string) (*pb.Rollout, error) {
			return svc.Rollouts.PauseRollout(cmd.Context(), &pb.PauseRolloutRequest{RolloutId: id, Comment: comment})
		})
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log only")
	return cmd
}

func (a commands) rolloutResumeCmd() *cobra.Command {
	var comment string
	cmd := a.rolloutAct("resume", "Go on with a rollout that is paused",
		`Go on. The failures so far count as known: the rollout stops again when as many more have failed.`,
		"  ingot rollout resume ro-01k",
		func(cmd *cobra.Command, svc *command.Services, id string) (*pb.Rollout, error) {
			return svc.Rollouts.ResumeRollout(cmd.Context(), &pb.ResumeRolloutRequest{RolloutId: id, Comment: comment})
		})
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log only")
	return cmd
}

func (a commands) rolloutCancelCmd() *cobra.Command {
	var comment string
	var operations bool
	cmd := a.rolloutAct("cancel", "End a rollout before its time",
		`Start no further machine, for good. Operations that have not begun are canceled; those under way
go to their end, unless --operations asks them to stop as well.`, "  ingot rollout cancel ro-01k --operations",
		func(cmd *cobra.Command, svc *command.Services, id string) (*pb.Rollout, error) {
			return svc.Rollouts.CancelRollout(cmd.Context(),
				&pb.CancelRolloutRequest{RolloutId: id, CancelOperations: operations, Comment: comment})
		})
	cmd.Flags().BoolVar(&operations, "operations", false, "ask the operations that are under way to stop, too")
	cmd.Flags().StringVar(&comment, "comment", "", "why; kept in the audit log only")
	return cmd
}

func (a commands) rolloutListCmd() *cobra.Command {
	l := command.ListOf(a.app.Services().Rollouts.ListRollouts, (*pb.Rollout).GetRolloutId, view.Style.Rollouts)
	cmd := l.Command(a.app, &cobra.Command{
		Short: "List rollouts",
		Long:  `List rollouts, newest first.`,
		Example: `  ingot rollout list
  ingot rollout list --filter state=PAUSED`,
	}, "", "")
	cmd.Flags().StringVar(&l.Request.Filter, "filter", "", "state=RUNNING, PAUSED, …, request_id=…")
	cmd.Flags().IntVar(&l.Limit, "limit", 50, "at most so many; 0 lists all")
	return cmd
}

func (a commands) rolloutMachinesCmd() *cobra.Command {
	l := command.ListOf(a.app.Services().Rollouts.ListRolloutMachines,
		(*pb.RolloutMachine).GetMachineId, view.Style.RolloutMachines)
	l.Prepare = func(args []string) error {
		l.Request.RolloutId = args[0]
		return nil
	}
	cmd := l.Command(a.app, &cobra.Command{
		Use:   "machines ROLLOUT",
		Short: "List the machines of a rollout",
		Long:  `List the machines of a rollout in the order in which they begin, those that were refused last.`,
		Example: `  ingot rollout machines ro-01k
  ingot rollout machines ro-01k --filter state=FAILED`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: command.CompleteAt(a.completeRollouts()),
	}, "", "")
	cmd.Flags().StringVar(&l.Request.Filter, "filter", "", "terms such as state=FAILED,wave=2")
	return cmd
}

func (a commands) completeRollouts() command.Completion {
	return command.CompleteList(a.app, a.app.Services().Rollouts.ListRollouts, &pb.ListRolloutsRequest{},
		func(r *pb.Rollout) string {
			return strings.TrimSpace(r.GetRolloutId() + "\t" + r.GetState().String() + " " + view.Clean(r.GetSpec().GetTitle()))
		})
}
