package ssh

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of a script's arguments. Linux takes 128 KiB in one argument (MAX_ARG_STRLEN).
const (
	MaxArgs     = 1000
	MaxArg      = 100 << 10
	MaxArgBytes = 256 << 10
)

// encodeArgs makes one line of each argument. A backslash and whatever is not printable ASCII becomes \0ooo, which the
// %b of printf(1) turns back; nothing else is special to it.
func encodeArgs(args []string) (string, error) {
	if len(args) > MaxArgs {
		return "", fmt.Errorf("%d arguments; at most %d are possible", len(args), MaxArgs)
	}
	var b strings.Builder
	total := 0
	for i, a := range args {
		total += len(a)
		if len(a) > MaxArg || total > MaxArgBytes {
			return "", fmt.Errorf("argument %d is too long", i+1)
		}
		if strings.ContainsRune(a, 0) {
			return "", errors.New("an argument holds a NUL, which no argument can")
		}
		encodeArg(&b, a)
	}
	return b.String(), nil
}

func encodeArg(b *strings.Builder, a string) {
	for i := range len(a) {
		if c := a[i]; c < ' ' || c > '~' || c == '\\' {
			fmt.Fprintf(b, `\0%03o`, c)
			continue
		}
		b.WriteByte(a[i])
	}
	b.WriteByte('\n')
}
