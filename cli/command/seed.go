package command

import (
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/userdata"
)

// SeedFlags are the flags that say what a new system is given for its first boot.
type SeedFlags struct {
	sshKeys                           []string
	userData, networkConfig, hostname string
}

// Register adds the flags to a command.
func (f *SeedFlags) Register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.sshKeys, "ssh-key", nil,
		"file with public ssh keys for the image's default user; may be repeated")
	cmd.Flags().StringVar(&f.userData, "user-data", "",
		"file with user-data for cloud-init, or for Ignition where the image has that; - is standard input")
	cmd.Flags().StringVar(&f.networkConfig, "network-config", "",
		"file with cloud-init's network configuration (default: DHCP on the interface that the machine boots from)")
	cmd.Flags().StringVar(&f.hostname, "hostname", "", "host name of the new system (default: the machine's id)")
}

// Read reads the files. It returns nil where no flag was given.
func (f *SeedFlags) Read(a *App) (*pb.SystemSeed, error) {
	seed := &pb.SystemSeed{Hostname: f.hostname}
	for _, path := range f.sshKeys {
		raw, err := a.ReadInput(path)
		if err != nil {
			return nil, err
		}
		n := len(seed.SshAuthorizedKeys)
		for line := range strings.Lines(string(raw)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				seed.SshAuthorizedKeys = append(seed.SshAuthorizedKeys, line)
			}
		}
		if len(seed.SshAuthorizedKeys) == n {
			return nil, Invalidf("%s holds no ssh key", path)
		}
	}
	for _, text := range []struct {
		path string
		into *string
	}{{f.userData, &seed.UserData}, {f.networkConfig, &seed.NetworkConfig}} {
		if text.path == "" {
			continue
		}
		raw, err := a.ReadInput(text.path)
		if err != nil {
			return nil, err
		}
		// cloud-init accepts compressed data; the request carries text.
		if *text.into, err = userdata.Plain(raw); err != nil {
			return nil, Invalidf("%s: %w", text.path, err)
		}
	}
	if seed.Hostname == "" && len(seed.SshAuthorizedKeys) == 0 && seed.UserData == "" && seed.NetworkConfig == "" {
		return nil, nil
	}
	return seed, nil
}
