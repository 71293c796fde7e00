package setup

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func (a commands) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print this program's version",
		Long:    `Print the version of this program; ingot server info prints the controller's.`,
		Example: "  ingot version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.app.Flags.Output != "json" {
				return a.app.Write(
					fmt.Sprintf("ingot %s (%s %s/%s)\n", a.app.Config.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH),
				)
			}
			raw, err := json.Marshal(map[string]string{
				"version": a.app.Config.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
			})
			if err != nil {
				return fmt.Errorf("write JSON: %w", err)
			}
			return a.app.Write(string(raw) + "\n")
		},
	}
}
