package cmdline

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/secret"
)

func keysCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Make the keys that several controllers share"}
	cmd.AddCommand(&cobra.Command{
		Use:   "make DIR",
		Short: "Make a CA and the key of stored secrets in a new directory",
		Long: `Make a CA and the key of stored secrets in a directory that does not exist yet. Every controller of one fleet
gets the same files, and finds them by keys_dir of its configuration: a Secret of Kubernetes that is mounted, or copies.
A fleet that has a CA keeps it: these keys are for a new fleet.`,
		Example: `  ingot-controller keys make ./keys
  kubectl create secret generic ingot-keys --from-file=./keys`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := makeKeys(args[0], time.Now()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(),
				"made the CA and the key of stored secrets in %s: who reads them owns the fleet\n", args[0])
			return err
		},
	})
	return cmd
}

// makeKeys leaves no directory behind when it fails.
func makeKeys(dir string, now time.Time) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make the keys: %w", err)
	}
	err := ca.MakeFiles(dir, now)
	if err == nil {
		_, err = secret.OpenFile(filepath.Join(dir, config.SecretKeyName), true)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make the keys: %w", err), os.RemoveAll(dir))
	}
	return nil
}
