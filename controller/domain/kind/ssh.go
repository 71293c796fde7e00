package kind

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// SSH runs a script on the machine from the site agent.
const SSH Kind = "ssh"

var ssh = Declaration{
	Kind:   SSH,
	Step:   true,
	Runs:   true,
	Action: "script",
	Check:  func(s *baremetalv1.Step, path string) error { return validateScript(s.GetSsh(), path) },
	HarmOf: func(s *baremetalv1.Step) Harm {
		if s.GetSsh().GetDestructive() {
			return Destroys
		}
		return Harmless
	},
	Route:    OverSSH,
	Harm:     Harmless, // as its script is declared
	Timeout:  600 * time.Second,
	Evidence: evidence.ExitCode,
	Started:  "Running script",
	Done:     "Script has ended",
	Doing:    "a script runs on the machine",
}

// Limits of the arguments of a script; the site agent has the same. Linux takes 128 KiB in one argument.
const (
	maxArgs     = 1000
	maxArg      = 100 << 10
	maxArgBytes = 256 << 10
)

var scriptName = regexp.MustCompile(`^[a-z0-9._-]{1,63}$`)

func validateScript(s *baremetalv1.SshCommand, field string) error {
	if !scriptName.MatchString(s.GetCommand()) {
		return Invalid("INVALID_FIELD", field+".command",
			"name a script of the catalogue: 1 to 63 characters of a-z, 0-9, ., _ and -")
	}
	if len(s.GetArgs()) > maxArgs {
		return Invalid("INVALID_FIELD", field+".args", fmt.Sprintf("at most %d arguments", maxArgs))
	}
	total := 0
	for i, a := range s.GetArgs() {
		total += len(a)
		if strings.ContainsRune(a, 0) {
			return Invalid("INVALID_FIELD", fmt.Sprintf("%s.args[%d]", field, i), "no argument can hold a NUL")
		}
		if len(a) > maxArg || total > maxArgBytes {
			return Invalid("INVALID_FIELD", fmt.Sprintf("%s.args[%d]", field, i), "too long: 100 KiB each, 256 KiB in all")
		}
	}
	return validateSecretArgs(s, field)
}

// HiddenArg stands in every answer for an argument that is secret.
const HiddenArg = "(secret)"

func validateSecretArgs(s *baremetalv1.SshCommand, field string) error {
	seen := map[int32]bool{}
	for i, at := range s.GetSecretArgs() {
		if at < 0 || int(at) >= len(s.GetArgs()) || seen[at] {
			return Invalid("INVALID_FIELD", fmt.Sprintf("%s.secret_args[%d]", field, i),
				"each is the position of one argument, from 0, and stands once")
		}
		seen[at] = true
		if s.GetArgs()[at] == HiddenArg {
			return Invalid("INVALID_FIELD", fmt.Sprintf("%s.args[%d]", field, at),
				"an answer shows (secret) in place of the argument; send the argument itself")
		}
	}
	return nil
}

// MapSecretArgs replaces the secret arguments of a step's script by what change returns for each. Other steps stay as
// they are. The first error ends it.
func MapSecretArgs(s *baremetalv1.SshCommand, change func(arg string) (string, error)) error {
	for _, at := range s.GetSecretArgs() {
		if at < 0 || int(at) >= len(s.GetArgs()) {
			continue
		}
		text, err := change(s.GetArgs()[at])
		if err != nil {
			return err
		}
		s.Args[at] = text
	}
	return nil
}

// HideSecretArgs puts HiddenArg in the places of the secret arguments.
func HideSecretArgs(s *baremetalv1.SshCommand) {
	_ = MapSecretArgs(s, func(string) (string, error) { return HiddenArg, nil }) // it returns no error
}
