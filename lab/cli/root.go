// Package cli is the command line of ingot-lab: it puts up a whole data centre, or runs single machines and builds what
// they boot from.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/internal/debian"
	"github.com/ingot-metal/ingot/lab/bmc"
)

// Main runs the command line and returns the exit code: 0 when all went well, 1 otherwise. SIGINT and SIGTERM
// end a running machine; that is an orderly end.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	bmc.MainIfControl()
	if err := Root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "ingot-lab:", err)
		return 1
	}
	return 0
}

// Root is the whole command tree.
func Root() *cobra.Command {
	root := &cobra.Command{
		Use: "ingot-lab", Short: "Run virtual machines that the agent manages as real ones",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(
		labUp(), labDown(), labList(), labConsole(), labPower(), labExec(), labEnv(), labCheck(), labServe(),
		group("image", "Build what machines boot from", imageBuild(), imageKernel()),
		group("vm", "Run and control machines", vmRun(), vmReboots(), vmStatus(), vmReset(), vmEndOnReset(),
			vmForwarded(), vmPowerdown(), vmQuit()),
	)
	return root
}

// group refuses a command it doesn't know. Cobra alone would print the help and exit with 0, and a script with
// a slip in it would go on.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// imageFlags are those of every command that may build an initramfs.
type imageFlags struct {
	agent, cache, compression string
}

func (f *imageFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.agent, "agent-binary", "", "static Linux binary that becomes /init")
	flags.StringVar(&f.cache, "cache", "", "directory of downloaded kernels (default $"+debian.CacheEnv+
		" or .cache/lab)")
	flags.StringVar(&f.compression, "compression", string(imagebuild.None), "none (boots faster) or gzip (smaller)")
}

func (f *imageFlags) kernel(ctx context.Context) (debian.Kernel, error) {
	cache := f.cache
	if cache == "" {
		var err error
		if cache, err = debian.DefaultCacheDir(); err != nil {
			return debian.Kernel{}, err
		}
	}
	return debian.FindKernel(ctx, cache)
}

// build makes the initramfs at out and returns the kernel it is for.
func (f *imageFlags) build(ctx context.Context, out string) (debian.Kernel, error) {
	k, err := f.kernel(ctx)
	if err != nil {
		return k, err
	}
	return k, imagebuild.Build(imagebuild.Config{
		Init: f.agent, Kernel: k, Compression: imagebuild.Compression(f.compression), Out: out,
	})
}
