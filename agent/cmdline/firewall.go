package cmdline

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/firewall"
)

// loadFirewall is what a boot runs before the network is up: a unit of systemd, or process 1.
func (a app) loadFirewall() *cobra.Command {
	return &cobra.Command{
		Use: "load-firewall", Short: "Load the packet filter's policy of the last commit, for the boot", Args: cobra.NoArgs,
		Long: `Load the packet filter's policy of the last commit into a kernel that has none of ours.
This is what a boot runs before the network is up. It works without the agent and without its state
directory, and an unproven policy is never loaded.

A table that is there already stays. Where the policy cannot be read, a closed one is loaded:
answers, loopback, ICMP and DHCP come in and nothing else does, and no mail goes out. The agent
still reaches its controller, and puts back the policy that it remembers when it starts. The exit
code is 7 then.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := host.New(host.Config{}).LoadFirewall(cmd.Context())
			if err != nil {
				if errors.Is(err, firewall.ErrPolicyFile) && got.State.Closed() {
					err = fmt.Errorf("the closed policy is loaded: %w", err)
				}
				return err
			}
			text := "no policy to load"
			switch {
			case got.Loaded:
				text = fmt.Sprintf("loaded generation %d", got.State.Generation)
			case got.State.Present:
				text = fmt.Sprintf("generation %d is loaded already", got.State.Generation)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
}
