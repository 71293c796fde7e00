package cmdline

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/imagebuild/bootdisk"
)

func inspect() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use: "inspect FILE", Short: "Print format, sizes, digests and partitions of an image",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			info, err := bootdisk.Inspect(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), info, func(w io.Writer) error { return printInfo(w, info) })
		},
	}
	o.bind(cmd)
	return cmd
}

func printInfo(w io.Writer, i bootdisk.Info) error {
	if err := printResult(w, i.Result); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "partition table: %s %s\n", i.Table, i.DiskID); err != nil {
		return err
	}
	for _, p := range i.Partitions {
		if _, err := fmt.Fprintf(w, "%3d  %12d  %12d  %s  %s\n", p.Number, p.Offset, p.Size, p.Type, p.Name); err != nil {
			return err
		}
	}
	return nil
}
