package command_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/cli/command"
)

// TestUserDataTravelsAsText: compressed data is unpacked here, and a file without text is refused by name.
func TestUserDataTravelsAsText(t *testing.T) {
	t.Parallel()
	read := func(file string) (string, error) {
		var f command.SeedFlags
		cmd := &cobra.Command{}
		f.Register(cmd)
		if err := cmd.Flags().Set("user-data", "../../internal/userdata/testdata/cases/"+file); err != nil {
			t.Fatal(err)
		}
		seed, err := f.Read(&command.App{})
		return seed.GetUserData(), err
	}
	if text, err := read("gz.data"); err != nil || !strings.HasPrefix(text, "#cloud-config\n") {
		t.Errorf("gzip: %q, %v", text, err)
	}
	if _, err := read(
		"latin1.data",
	); err == nil ||
		!strings.Contains(err.Error(), "not text in UTF-8: the fault is in line 2") {
		t.Errorf("Latin 1: %v", err)
	}
}
