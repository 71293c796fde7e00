package admin

import (
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/command"
)

func (a commands) consoleCmd() *cobra.Command {
	var open bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Print a link that signs on to the web console once",
		Long: `Print a link to the web console of the controller that answers. It signs on once, within a minute,
as the holder of the token that this command uses. Treat it like that token until it has been used.`,
		Example: `  ingot console
  ingot console --open`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			link, err := a.consoleLink(cmd)
			if err != nil {
				return err
			}
			if !open {
				return a.printLink(link)
			}
			program := append(opener(), link.URL)
			if err := exec.CommandContext(cmd.Context(), program[0], program[1:]...).Run(); err != nil {
				return fmt.Errorf("open a browser with %s: %w; run ingot console without --open", program[0], err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&open, "open", false, "open it in this machine's browser instead")
	return cmd
}

// opener is the command of this operating system that opens a link in the user's browser.
func opener() []string {
	switch runtime.GOOS {
	case "darwin":
		return []string{"open"}
	case "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	return []string{"xdg-open"}
}

// link is a way in for one person.
type link struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (a commands) consoleLink(cmd *cobra.Command) (link, error) {
	svc := a.app.Services()
	info, err := svc.Admin.GetServerInfo(cmd.Context(), &pb.GetServerInfoRequest{})
	if err != nil {
		return link{}, err
	}
	target, err := a.app.Target()
	if err != nil {
		return link{}, err
	}
	address, err := client.ConsoleAddress(target.Server, info.GetRestAddress())
	if err != nil {
		return link{}, err
	}
	code, err := client.ConsoleCode(cmd.Context(), target, address)
	if err != nil {
		return link{}, err
	}
	// What follows # stays in the browser: it reaches no server and no log.
	return link{URL: "https://" + address + "/console/#code=" + code.Code, ExpiresAt: code.ExpiresAt}, nil
}

func (a commands) printLink(l link) error {
	if printed, err := command.PrintJSON(a.app, l); printed {
		return err
	}
	return a.app.Write(l.URL + "\n")
}
