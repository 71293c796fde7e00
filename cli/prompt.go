package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
) // password reads a password from a file, a terminal or standard input.
func (a *app) password(name, file string) (string, error) {
	switch {
	case file != "" && file != "-":
		raw, err := a.readInput(file)
		return oneLine(string(raw)), err
	case file == "" && a.cfg.ReadPassword != nil:
		a.ask("Password for %s: ", name)
		raw, err := a.cfg.ReadPassword()
		a.note("")
		if err != nil {
			return "", fmt.Errorf("read password: %w", err)
		}
		return string(raw), nil
	}
	line, err := bufio.NewReader(a.cfg.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read password: %w", err)
	}
	return oneLine(line), nil
}

// oneLine leaves out the line end that editors and echo put behind a password.
func oneLine(s string) string { return strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r") }

// ask writes a question without a line end. A lost one is not worth failing for.
func (a *app) ask(format string, args ...any) {
	_, _ = fmt.Fprintf(a.cfg.Err, format, args...)
}

// confirm asks before what cannot be taken back. Where nobody can answer, only --yes goes on.
func (a *app) confirm(yes bool, what, name string) error {
	if yes {
		return nil
	}
	if a.cfg.ReadPassword == nil { // In is no terminal
		return usagef("%s\nGive --yes to go on, or --dry-run to see what would happen", what)
	}
	a.note("%s\nType %s to go on:", what, name)
	line, err := bufio.NewReader(a.cfg.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.TrimSpace(line) != name {
		return usagef("not confirmed; nothing was started")
	}
	return nil
}
