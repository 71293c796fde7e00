package pid1

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// policyFiles are where package host records the packet filter's policy. Without either there never was one.
var policyFiles = []string{"/etc/ingot/network/firewall.json", guardFile}

// loadFirewall does before the network is up what ingot-firewall.service does under systemd.
func loadFirewall(program string) error {
	if !anyExists(policyFiles) {
		return nil
	}
	p, err := os.StartProcess(program, []string{"ingot-agent", "load-firewall"}, &os.ProcAttr{
		Env: os.Environ(), Dir: "/", Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return fmt.Errorf("start load-firewall: %w", err)
	}
	state, err := p.Wait()
	if err != nil {
		return fmt.Errorf("wait for load-firewall: %w", err)
	}
	if !state.Success() {
		return fmt.Errorf("load-firewall: %s", state)
	}
	return nil
}

// anyExists takes a file that cannot be looked at for one that exists.
func anyExists(files []string) bool {
	for _, f := range files {
		if _, err := os.Stat(f); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}
