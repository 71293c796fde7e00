package pid1

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
)

// installerFile hands what process 1 found over to the child.
const installerFile = "/run/ingot/installer.json"

// Installer is what a machine knows that was booted to be installed, with kernel parameters and without a state
// disk: whom to ask, and as whom.
type Installer struct {
	// Site is the base URL of the site's boot server, without a slash at its end.
	Site string `json:"site"`
	// Token is the boot token of the operation. It is no secret: it stands in scripts and on the command line.
	Token string `json:"token"`
	// Interface, MAC (lower case, with colons) and Address are those that DHCP gave an answer on, or through which the
	// site answers.
	Interface string       `json:"interface"`
	MAC       string       `json:"mac"`
	Address   netip.Prefix `json:"address"`
	// Static is the network that the image gave the machine; nil where DHCP did.
	Static *Network `json:"static,omitempty"`
	// MediaSecret is that of the image that the machine was started from; nil where it was not.
	MediaSecret []byte `json:"media_secret,omitempty"`
}

// Installer is nil on a machine that was not booted to be installed.
func (s *System) Installer() *Installer { return s.installer }

func (i Installer) write(path string) error {
	data, err := json.Marshal(i)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("hand over to the agent process: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("hand over to the agent process: %w", err)
	}
	return nil
}

// readInstaller returns nil when there is no such file.
func readInstaller(path string) (*Installer, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what process 1 hands over: %w", err)
	}
	var i Installer
	if err := json.Unmarshal(data, &i); err != nil {
		return nil, fmt.Errorf("parse what process 1 hands over: %w", err)
	}
	return &i, nil
}
