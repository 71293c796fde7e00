package cmdline

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/imagebuild/bootdisk"
)

func tiny() *cobra.Command {
	var s source
	var o output
	var cfg bootdisk.TinyConfig
	cmd := &cobra.Command{
		Use: "tiny --out FILE", Short: "Build a disk image with a kernel and the agent, and nothing else",
		Args: usage(cobra.NoArgs),
		Long: `Build a disk image with a kernel and the agent, and nothing else. It boots on BIOS and on UEFI machines, takes
its address by DHCP, and keeps the machine's state on the partition that the installer adds. The same inputs give the
same bytes. FILE is compressed when its name ends in .zst.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.check(), needOut(cfg.Out)); err != nil {
				return err
			}
			if s.arch != "amd64" {
				return fmt.Errorf("%w: disk images are built for amd64 only", errUsage)
			}
			k, err := s.resolve()
			if err != nil {
				return err
			}
			cfg.Agent, cfg.Kernel, cfg.FirmwareDir, cfg.Compression = s.agent, k, s.firmware,
				imagebuild.Compression(s.compression)
			r, err := bootdisk.Tiny(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), r, func(w io.Writer) error { return printResult(w, r) })
		},
	}
	s.bind(cmd)
	o.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&cfg.Out, "out", "", "file to write, such as tiny.raw.zst")
	f.StringVar(&cfg.Cmdline, "cmdline", "", "kernel command line; no secrets (default \""+bootdisk.DefaultCmdline+
		" ingot.net=dhcp\")")
	return cmd
}

func printResult(w io.Writer, r bootdisk.Result) error {
	_, err := fmt.Fprintf(w, "%s  %11d  %s (%s)\n%s  %11d  raw\n", r.SHA256File, r.SizeFile, r.File, r.Format, r.SHA256Raw,
		r.SizeRaw)
	return err
}
