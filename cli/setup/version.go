package setup

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print this program's version",
		Long:    `Print the version of this program; ingot server info prints the controller's.`,
		Example: "  ingot version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if printed, err := command.PrintJSON(a.app, map[string]string{
				"version": a.app.Config.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
			}); printed {
				return err
			}
			return a.app.Write(
				fmt.Sprintf("ingot %s (%s %s/%s)\n", a.app.Config.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH),
			)
		},
	}
}
