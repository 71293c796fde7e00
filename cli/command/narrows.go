package command

import (
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// narrows annotates flags that bound a right or a rule, with its extent without them.
const narrows = "narrows"

// Narrows marks flags whose empty value would give all, such as every machine. A flag that is given and empty is a
// variable that a script has not set: it is refused before anything is sent.
func Narrows(cmd *cobra.Command, all string, flags ...string) {
	for _, name := range flags {
		if err := cmd.Flags().SetAnnotation(name, narrows, []string{all}); err != nil {
			panic(err)
		}
	}
}

// widened refuses a narrowing flag that is given without a bound.
func widened(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		all := f.Annotations[narrows]
		if len(all) == 0 || err != nil {
			return
		}
		d, bad := time.ParseDuration(f.Value.String())
		none := []string{"", "[]"}
		if slices.Contains(none, f.Value.String()) || f.Value.Type() == "duration" && bad == nil && d <= 0 {
			err = Usagef("--%s bounds nothing: leave it out for %s", f.Name, all[0])
		}
	})
	return err
}
