package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func imageBuild() *cobra.Command {
	var flags imageFlags
	var out string
	cmd := &cobra.Command{
		Use: "build", Short: "Build an initramfs; prints the path of the kernel it goes with", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := flags.build(cmd.Context(), out)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), k.Image)
			return err
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&out, "out", "initrd.img", "file to write")
	require(cmd, "agent-binary")
	return cmd
}

func imageKernel() *cobra.Command {
	var flags imageFlags
	cmd := &cobra.Command{
		Use: "kernel", Short: "Find or download the kernel; prints its path", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := flags.kernel(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), k.Image)
			return err
		},
	}
	cmd.Flags().StringVar(&flags.cache, "cache", "", "directory of downloaded kernels")
	return cmd
}

// require panics on a flag that doesn't exist, which only a programmer can cause.
func require(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
}
