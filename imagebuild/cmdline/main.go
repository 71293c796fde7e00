// Package cmdline is the command line of ingot-image: its verbs, flags and exit codes.
package cmdline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/internal/debian"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

var errUsage = errors.New("wrong usage")

// Main runs the command line until ctx ends, and returns the exit code. Results go to out, progress and errors to
// progress. buildVersion may be empty.
func Main(ctx context.Context, args []string, out, progress io.Writer, buildVersion string) int {
	root := newRoot(buildVersion)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(progress)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(progress, "ingot-image:", err)
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailed
}

// Commands returns the tree of commands, for pages that describe it.
func Commands() *cobra.Command { return newRoot("") }

func newRoot(buildVersion string) *cobra.Command {
	root := &cobra.Command{
		Use: "ingot-image", Short: "Builds what machines boot from", SilenceUsage: true, SilenceErrors: true,
		Version: versionOr(buildVersion),
		Long: `ingot-image builds installers and disk images. It needs no loop devices and no mounts.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
	}
	root.Args = usage(cobra.NoArgs)
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.AddCommand(installer(), tiny(), debianImage(), inspect())
	return root
}

// usage makes wrong arguments wrong usage.
func usage(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		return nil
	}
}

// needOut is for the flag without which there is nothing to do.
func needOut(out string) error {
	if out == "" {
		return fmt.Errorf("%w: --out says where the result goes", errUsage)
	}
	return nil
}

func versionOr(version string) string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// source are the flags that say what an image is made of.
type source struct {
	agent, kernel, modules, firmware, arch, compression string
}

func (s *source) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.agent, "agent-binary", "",
		"static ingot-agent that becomes /init (default: ingot-agent beside this program, or in /usr/bin)")
	f.StringVar(&s.kernel, "kernel", "", "kernel image (default: this host's own)")
	f.StringVar(&s.modules, "modules-dir", "", "lib/modules/RELEASE of the kernel (default: where packages put it)")
	f.StringVar(&s.firmware, "firmware-dir", "", "firmware that drivers ask for, such as /lib/firmware (default: none)")
	f.StringVar(&s.arch, "arch", runtime.GOARCH, "amd64 or arm64")
	f.StringVar(&s.compression, "compression", string(imagebuild.Zstd), "of the initramfs: zstd, gzip or none")
}

// resolve fills in what may be left out.
func (s *source) resolve() (debian.Kernel, error) {
	if s.agent == "" {
		s.agent = findAgent()
	}
	if s.kernel == "" && s.modules == "" {
		return debian.InstalledKernel(s.arch)
	}
	if s.kernel == "" {
		return debian.Kernel{}, fmt.Errorf("%w: --modules-dir needs --kernel", errUsage)
	}
	return debian.KernelAt(s.kernel, s.modules)
}

func findAgent() string {
	const name = "ingot-agent"
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil {
			return beside
		}
	}
	return filepath.Join("/usr/bin", name)
}

// output is the flag that chooses between words and JSON.
type output string

func (o *output) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(o), "output", "text", "text or json")
}

func (o output) check() error {
	if o != "text" && o != "json" {
		return fmt.Errorf("%w: --output %q is not text or json", errUsage, string(o))
	}
	return nil
}

// print writes v as JSON, or calls text.
func (o output) print(w io.Writer, v any, text func(io.Writer) error) error {
	if o == "text" {
		return text(w)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
