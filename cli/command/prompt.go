package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Password reads a password from a file, a terminal or standard input.
func (a *App) Password(name, file string) (string, error) {
	switch {
	case file != "" && file != "-":
		raw, err := a.ReadInput(file)
		return oneLine(string(raw)), err
	case file == "" && a.Config.ReadPassword != nil:
		a.ask("Password for %s: ", name)
		raw, err := a.Config.ReadPassword()
		a.Note("")
		if err != nil {
			return "", fmt.Errorf("read password: %w", err)
		}
		return string(raw), nil
	}
	line, err := bufio.NewReader(a.Config.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read password: %w", err)
	}
	return oneLine(line), nil
}

// oneLine leaves out the line end that editors and echo put behind a password.
func oneLine(s string) string { return strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r") }

// ask writes a question without a line end. A lost one is not worth failing for.
func (a *App) ask(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Config.Err, format, args...)
}

// Confirm asks before an effect that cannot be undone. Without a terminal only --yes goes on.
func (a *App) Confirm(yes bool, what, name string) error {
	if yes {
		return nil
	}
	if a.Config.ReadPassword == nil { // In is no terminal
		return Usagef("%s\nGive --yes to go on, or --dry-run to see what would happen", what)
	}
	a.Note("%s\nType %s to go on:", what, name)
	line, err := bufio.NewReader(a.Config.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.TrimSpace(line) != name {
		return Usagef("not confirmed; nothing was started")
	}
	return nil
}
