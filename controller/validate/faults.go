// Package validate checks what clients send: fields, filters and page tokens. It is pure, and every refusal names the
// field that is at fault, all of them at once where there are several.
package validate

import (
	"fmt"

	"github.com/ingot-metal/ingot/internal/failure"
)

// faults collects what is wrong with one request.
type faults struct{ fields []failure.Field }

// add notes a fault; an empty description is none.
func (f *faults) add(path, description string) {
	if description != "" {
		f.fields = append(f.fields, failure.Field{Path: path, Description: description})
	}
}

// err is nil when nothing was noted, else INVALID_ARGUMENT with every fault.
func (f *faults) err() error {
	if len(f.fields) == 0 {
		return nil
	}
	e := failure.Invalid("INVALID_FIELD", "%s: %s", f.fields[0].Path, f.fields[0].Description)
	if n := len(f.fields) - 1; n > 0 {
		e = failure.Invalid("INVALID_FIELD", "%s: %s (and %d more)", f.fields[0].Path, f.fields[0].Description, n)
	}
	e.Fields = f.fields
	return e
}

// Fault is one bad field of an otherwise good request.
func Fault(path, format string, args ...any) error {
	var f faults
	f.add(path, fmt.Sprintf(format, args...))
	return f.err()
}
