// Package validate checks what clients send: fields, filters and page tokens. It is pure, and every refusal names the
// field that is at fault, all of them at once where there are several.
package validate

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/safetext"
)

// faults collects the errors of one request.
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

// opaque are fields whose text is handed on as it is and shown nowhere: any character but NUL may be part of it.
var opaque = map[protoreflect.FullName]bool{
	"baremetal.v1.SystemSeed.user_data":              true,
	"baremetal.v1.SystemSeed.network_config":         true,
	"baremetal.v1.SetBMCCredentialsRequest.password": true,
}

// Texts refuses a request with a character in any string that controls a terminal, reorders a line or breaks a parser.
// It refuses NUL, which Postgres does not store.
func Texts(m proto.Message) error {
	at := safetext.Find(m, func(field protoreflect.FullName, text string) bool {
		if opaque[field] {
			return strings.ContainsRune(text, 0)
		}
		return strings.ContainsFunc(text, safetext.Unsafe)
	})
	if at != "" {
		return Fault(at, "holds a control character, a bidirectional control or U+FEFF")
	}
	return nil
}

// ReportedTexts refuses NUL, and cleans the strings of a report: they repeat what a program printed.
func ReportedTexts(m proto.Message) error {
	at := safetext.Find(m, func(_ protoreflect.FullName, text string) bool { return strings.ContainsRune(text, 0) })
	if at != "" {
		return Fault(at, "holds NUL")
	}
	safetext.Message(m)
	return nil
}
