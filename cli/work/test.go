package work

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) testCmd() *cobra.Command {
	var w command.WorkFlags
	var b command.Bulk
	var tests []string
	var duration time.Duration
	var memory int32
	var diskMiB int64
	cmd := &cobra.Command{
		Use:   "test MACHINE…",
		Short: "Test a machine's hardware; nothing on its disks is changed",
		Long: `Test the hardware of a machine in maintenance, by its own agent and at low priority: links and their speed,
processors, memory, and disks, which are asked for their health and read. Only memory is written. The time is shared
between the tests.

A part that does not work fails the operation, and the machine needs a person until a test succeeds. What was found, and
how it compares with other machines of the model, shows: ingot machine tests MACHINE.` +
			command.TargetsHelp + command.WaitHelp,
		Example: `  ingot test m-1
  ingot test m-1 --tests memory --duration 30m --memory 90
  ingot test --select rack=r42,state=MAINTENANCE --max-in-flight 8`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if diskMiB < 0 || diskMiB > math.MaxInt64>>20 {
				return command.Usagef("--disk-mib is from 0 to %d", math.MaxInt64>>20)
			}
			seconds := wholeSeconds(duration)
			spec := &pb.RolloutSpec{Type: "TEST_HARDWARE", Params: map[string]string{
				"tests": strings.Join(tests, ","), "duration_seconds": paramText(int64(seconds)),
				"memory_percent": paramText(int64(memory)), "disk_bytes": paramText(diskMiB << 20),
			}}
			return a.app.WorkOn(
				cmd,
				args,
				&b,
				&w,
				spec,
				func(ctx context.Context, svc *command.Services, machine, id string, secs int32) (*pb.Operation, error) {
					return svc.Machines.TestMachine(ctx, &pb.TestMachineRequest{
						ValidateOnly: b.ValidateOnly,
						MachineId:    machine, RequestId: id, Tests: tests, DurationSeconds: seconds, MemoryPercent: memory,
						DiskBytes: diskMiB << 20, TimeoutSeconds: secs,
					})
				},
			)
		},
	}
	w.Register(cmd)
	b.Register(a.app, cmd)
	f := cmd.Flags()
	f.StringSliceVar(&tests, "tests", nil, "of nic, cpu, memory and disk (default: all)")
	f.DurationVar(&duration, "duration", 0, "how long all of it may take, up to 1h (default: 2m)")
	f.Int32Var(&memory, "memory", 0, "how much of the free memory is tested, in percent, up to 90 (default: 50)")
	f.Int64Var(&diskMiB, "disk-mib", 0, "how much of each disk is read at most, in MiB (default: 4096)")
	command.Fixed(cmd, "tests", "nic", "cpu", "memory", "disk")
	return cmd
}

// wholeSeconds rounds up: no time is no limit of its own.
func wholeSeconds(d time.Duration) int32 { return int32(min((d+time.Second-1)/time.Second, 1<<30)) }

// paramText is a parameter; empty where it was not given.
func paramText(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
