package plan

import (
	"fmt"
	"regexp"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Limits of the arguments of a script; the site agent has the same. Linux takes 128 KiB in one argument.
const (
	maxArgs     = 1000
	maxArg      = 100 << 10
	maxArgBytes = 256 << 10
)

var scriptName = regexp.MustCompile(`^[a-z0-9._-]{1,63}$`)

func validateScript(s *baremetalv1.SshCommand, field string) error {
	if !scriptName.MatchString(s.GetCommand()) {
		return invalid("INVALID_FIELD", field+".command",
			"name a script of the catalogue: 1 to 63 characters of a-z, 0-9, ., _ and -")
	}
	if len(s.GetArgs()) > maxArgs {
		return invalid("INVALID_FIELD", field+".args", fmt.Sprintf("at most %d arguments", maxArgs))
	}
	total := 0
	for i, a := range s.GetArgs() {
		total += len(a)
		if strings.ContainsRune(a, 0) {
			return invalid("INVALID_FIELD", fmt.Sprintf("%s.args[%d]", field, i), "no argument can hold a NUL")
		}
		if len(a) > maxArg || total > maxArgBytes {
			return invalid("INVALID_FIELD", fmt.Sprintf("%s.args[%d]", field, i), "too long: 100 KiB each, 256 KiB in all")
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
			return invalid("INVALID_FIELD", fmt.Sprintf("%s.secret_args[%d]", field, i),
				"each is the position of one argument, from 0, and stands once")
		}
		seen[at] = true
		if s.GetArgs()[at] == HiddenArg {
			return invalid("INVALID_FIELD", fmt.Sprintf("%s.args[%d]", field, at),
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

// validateRMA keeps a machine from being worked on between its flag and its return.
func validateRMA(p *baremetalv1.Plan) error {
	for i, s := range p.GetSteps() {
		if KindOf(s) != "rma" {
			continue
		}
		field := fmt.Sprintf("plan.steps[%d].rma.action", i)
		switch back := s.GetRma().GetAction() == "return"; {
		case back && i != 0:
			return invalid("INVALID_FIELD", field,
				"return is the first step of its plan: nothing before it runs on a blocked machine")
		case !back && i != len(p.GetSteps())-1:
			return invalid("INVALID_FIELD", field,
				"flag is the last step of its plan: nothing after it runs on a blocked machine")
		}
	}
	return nil
}

// ReturnsFromRMA says that the plan begins with taking the flag RMA off.
func ReturnsFromRMA(p *baremetalv1.Plan) bool {
	first := p.GetSteps()
	return len(first) > 0 && KindOf(first[0]) == "rma" && first[0].GetRma().GetAction() == "return"
}

func rmaStep(action string) *baremetalv1.Step {
	return &baremetalv1.Step{Name: "rma", Kind: &baremetalv1.Step_Rma{Rma: &baremetalv1.RmaAction{Action: action}}}
}
