package cmdline

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/imagebuild/bootdisk"
)

func debianImage() *cobra.Command {
	var o output
	var cfg bootdisk.DebianConfig
	cmd := &cobra.Command{
		Use:   "debian --out FILE --agent-deb DEB",
		Short: "Build a disk image with Debian and the agent",
		Args:  usage(cobra.NoArgs),
		Long: `Build a disk image with Debian and the agent, which boots on BIOS and on UEFI machines. It fetches
packages with mmdebstrap, security updates included, and needs root for the owners of files. It has no ssh keys, no
machine-id and no password; the root file system grows to the disk's size. Progress goes to standard error. FILE is
compressed when its name ends in .zst.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.check(), needOut(cfg.Out)); err != nil {
				return err
			}
			if cfg.AgentDeb == "" {
				var err error
				if cfg.AgentDeb, err = findDeb(); err != nil {
					return err
				}
			}
			cfg.Progress = cmd.ErrOrStderr()
			r, err := bootdisk.Debian(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), r, func(w io.Writer) error { return printResult(w, r) })
		},
	}
	o.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&cfg.Out, "out", "", "file to write, such as debian.raw.zst")
	f.StringVar(&cfg.AgentDeb, "agent-deb", "", "package of the agent (default: dist/ingot-agent_*.deb)")
	f.StringVar(&cfg.Suite, "suite", "bookworm", "release of Debian")
	f.StringVar(&cfg.KernelPackage, "kernel-package", "linux-image-cloud-amd64",
		"linux-image-amd64 has the drivers of real machines")
	f.StringSliceVar(&cfg.Packages, "packages", nil, "further packages")
	f.StringArrayVar(&cfg.Mirrors, "mirror", nil,
		"URL or line of sources.list (default: Debian's, with security updates); may be repeated")
	f.StringArrayVar(&cfg.Hooks, "hook", nil,
		"shell command that changes the system, whose root directory is \"$1\"; may be repeated")
	f.StringVar(&cfg.Cmdline, "cmdline", bootdisk.DefaultCmdline, "kernel command line; no secrets")
	f.Int64Var(&cfg.SizeMiB, "size", 0,
		"size of the image in MiB (default: what the files need; the root file system grows at its first boot)")
	return cmd
}

func findDeb() (string, error) {
	pattern := filepath.Join("dist", "ingot-agent_*_"+runtime.GOARCH+".deb")
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%w: %d packages match %s; name one with --agent-deb", errUsage, len(found), pattern)
	}
	return found[0], nil
}
