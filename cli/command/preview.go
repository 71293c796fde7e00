package command

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// notReal are the flags that request a preview, or choose its format.
var notReal = map[string]bool{"dry-run": true, "validate-only": true, "output": true}

// Line returns the command line that does what a dry run of the command has shown, with its machines and flags.
func Line(cmd *cobra.Command, args []string) string {
	words := []string{cmd.CommandPath()}
	for _, arg := range args {
		words = append(words, Quote(arg))
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if notReal[f.Name] {
			return
		}
		if f.Value.Type() == "bool" && f.Value.String() == "true" {
			words = append(words, "--"+f.Name)
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			words = append(words, "--"+f.Name+"="+Quote(v))
		}
	})
	return strings.Join(words, " ")
}

// Quote returns a word as a POSIX shell reads it back.
func Quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// ExitByPreview returns the exit code of the refusal where a preview answers no. alone reports whether the call is on
// one machine, without a rollout; then the code is that of the machine's refusal.
func ExitByPreview(p *pb.RolloutPreview, alone bool) error {
	if ready(p) > 0 {
		return nil
	}
	if all := p.GetMachines(); alone && len(all) > 0 && all[0].GetCode() != 0 {
		return &ExitError{Code: exitByStatus(codes.Code(all[0].GetCode()))}
	}
	return &ExitError{Code: ExitRefused} // as ROLLOUT_EMPTY
}
