package system

import (
	"context"
	"fmt"

	"github.com/ingot-metal/ingot/agent/host/effect"
)

// Hostname is the running one.
func (s *System) Hostname(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	name := s.ReadText("proc/sys/kernel/hostname")
	if name == "" {
		return "", fmt.Errorf("read host name from %s: nothing there", s.Path("proc/sys/kernel/hostname"))
	}
	return name, nil
}

// SetHostname writes the file first: if the kernel refuses, the next boot still has the wanted name, and the error
// reports that the running one differs.
func (s *System) SetHostname(ctx context.Context, _ effect.Cause, name string) error {
	if err := ValidateHostname(name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.hostnameIs(name) {
		return nil
	}
	if err := ReplaceFile(s.Path("etc/hostname"), []byte(name+"\n")); err != nil {
		return fmt.Errorf("write host name: %w", err)
	}
	if err := s.Kernel.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if !s.hostnameIs(name) {
		return fmt.Errorf("set host name %s: file holds %q, kernel %q: %w", name, s.ReadText("etc/hostname"),
			s.ReadText("proc/sys/kernel/hostname"), effect.ErrReadBack)
	}
	return nil
}

func (s *System) hostnameIs(name string) bool {
	return s.ReadText("etc/hostname") == name && s.ReadText("proc/sys/kernel/hostname") == name
}
