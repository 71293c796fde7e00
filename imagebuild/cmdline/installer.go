package cmdline

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/imagebuild"
)

// uniCmdline is the command line of a unified kernel image until a boot server puts in another one.
const uniCmdline = "ingot.role=installer panic=10 quiet"

func installer() *cobra.Command {
	var s source
	var o output
	var cfg imagebuild.InstallerConfig
	cmd := &cobra.Command{
		Use: "installer --out DIR", Short: "Build the system that machines boot over the network to be installed",
		Args: usage(cobra.NoArgs),
		Long: `Build the system that machines boot over the network to be installed: a kernel and an initramfs whose only
program is the agent, and both in one as a unified kernel image. The same inputs give the same bytes. The files and
their digests stand in DIR/manifest.json.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.check(), needOut(cfg.Dir)); err != nil {
				return err
			}
			k, err := s.resolve()
			if err != nil {
				return err
			}
			cfg.Agent, cfg.Kernel, cfg.Arch, cfg.FirmwareDir = s.agent, k, s.arch, s.firmware
			cfg.Compression = imagebuild.Compression(s.compression)
			m, err := imagebuild.Installer(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), m, func(w io.Writer) error { return printManifest(w, cfg.Dir, m) })
		},
	}
	s.bind(cmd)
	o.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&cfg.Dir, "out", "", "directory for the files")
	f.StringVar(&cfg.Format, "format", imagebuild.FormatAll, imagebuild.FormatSplit+", "+imagebuild.FormatUKI+" or "+
		imagebuild.FormatAll)
	f.StringVar(&cfg.Stub, "stub", "",
		"EFI stub for the unified kernel image (default: that of the package systemd-boot-efi)")
	f.StringVar(&cfg.Cmdline, "cmdline", uniCmdline, "command line in the unified kernel image; no secrets")
	return cmd
}

func printManifest(w io.Writer, dir string, m imagebuild.Manifest) error {
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		f := m.Files[name]
		if _, err := fmt.Fprintf(w, "%s  %9d  %s\n", f.SHA256, f.Size, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
