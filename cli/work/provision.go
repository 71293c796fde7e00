package work

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// failedPercent stops a provisioning: one bad disk does not hold up a rack, a bad image does.
const failedPercent = 20

const agentlessUsage = "add no agent to the image; its cloud-init proves the new system by phoning home, within 30m"

func (a commands) provisionCmd() *cobra.Command {
	var w command.WorkFlags
	b := command.Bulk{FailedPercent: failedPercent}
	var seed command.SeedFlags
	var image, path string
	var agentless, tested bool
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "provision MACHINE… --image IMAGE",
		Short: "Install an image on machines and put them in service, from wherever they are",
		Long: `Install an image and put the machines in service. A machine that is new or discovered is
approved by it, one in service is taken out first. All data on their system disks is lost.

The controller drives it: each machine enters maintenance, is reimaged, and leaves maintenance when
its new system has answered. One that fails stays in maintenance, and its reason is shown at once.
With --test its hardware is tested before it leaves maintenance: see ingot test.
With the same --request-id the command comes back to what is under way, and begins nothing anew.` +
			command.TargetsHelp,
		Example: `  ingot provision --select rack=r42,state=NEW --image debian-13 --ssh-key key.pub --user-data web.yaml
  ingot provision 'r42-[01-16]' --image debian-13 --max-in-flight 8 --yes
  ingot provision -f machines.txt --image debian-13 --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			given, err := seed.Read(a.app)
			if err != nil {
				return err
			}
			spec := &pb.RolloutSpec{
				Seed:   given,
				Action: pb.RolloutSpec_PROVISION, Title: strings.TrimSpace("provision " + image),
				Params: map[string]string{"image_ref": image, "path": path, "agentless": flagText(agentless)},
			}
			if tested || duration != 0 {
				spec.Test = &pb.TestHardware{DurationSeconds: wholeSeconds(duration)}
			}
			seconds, err := w.StepSeconds()
			if err != nil {
				return err
			}
			if seconds > 0 {
				spec.Params["timeout_seconds"] = strconv.Itoa(int(seconds))
			}
			return a.app.Roll(cmd, &b, &w, args, spec)
		},
	}
	w.Register(cmd)
	seed.Register(cmd)
	a.app.Must(cmd.Flags().MarkHidden("hostname")) // it fits one machine only
	b.Register(a.app, cmd)
	cmd.Flags().StringVar(&image, "image", "", "image to write (default: the machine's or the server's)")
	cmd.Flags().
		StringVar(&path, "path", "", "how machines get into the installer: auto (default), kexec, bootnext, bmc or media")
	cmd.Flags().BoolVar(&tested, "test", false, "test the hardware before the machine is put in service")
	cmd.Flags().DurationVar(&duration, "test-duration", 0, "test the hardware for so long, up to 1h (default: 2m)")
	cmd.Flags().BoolVar(&agentless, "agentless", false, agentlessUsage)
	command.Fixed(cmd, "path", "auto", "kexec", "bootnext", "bmc", "media")
	a.app.Must(cmd.RegisterFlagCompletionFunc("image", a.app.CompleteImages("kind=os")))
	return cmd
}
