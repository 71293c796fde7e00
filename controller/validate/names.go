package validate

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/ingot-metal/ingot/internal/dnsname"
	"github.com/ingot-metal/ingot/internal/failure"
)

var (
	// Parts that begin with a letter or digit, so that none is taken for an option or a directory, with slashes between.
	planForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*$`)
	nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	// Kubernetes: "Labels and Selectors", syntax and character set.
	labelName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelPrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
)

const (
	maxLabels    = 64
	maxPrefix    = 253
	maxText      = 255
	maxComment   = 4096
	maxRequestID = 128
)

// RequestID checks an idempotency key: 1 to 128 printable ASCII characters.
func RequestID(id string) error {
	if id == "" {
		const why = "required: the call is repeated under it when its answer is lost"
		return failure.Invalid("REQUEST_ID_REQUIRED", "request_id is %s", why).WithField("request_id", why)
	}
	if len(id) > maxRequestID || !printableASCII(id) || strings.TrimSpace(id) == "" {
		return Fault("request_id", "1 to %d printable ASCII characters, not only spaces", maxRequestID)
	}
	return nil
}

// OptionalRequestID is RequestID where empty is allowed.
func OptionalRequestID(id string) error {
	if id == "" {
		return nil
	}
	return RequestID(id)
}

func printableASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// Key checks a value by which something is looked up. Any text may be asked for, but not none, and nothing that no
// identifier can hold.
func Key(path, id string) error {
	if id == "" {
		return Fault(path, "required")
	}
	var f faults
	f.add(path, text(id, maxText))
	return f.err()
}

// OptionalKey is Key where empty is allowed.
func OptionalKey(path, id string) error {
	if id == "" {
		return nil
	}
	return Key(path, id)
}

// NewID checks an identifier that a client chooses; empty lets the server choose.
func NewID(path, id string) error {
	var f faults
	f.add(path, newID(id))
	return f.err()
}

func newID(id string) string {
	if id == "" || dnsname.MachineID(id) {
		return ""
	}
	return dnsname.MachineIDRule
}

// maxPlanID bounds the identifier of a plan.
const maxPlanID = 127

func planID(id string) string {
	if id == "" || len(id) <= maxPlanID && planForm.MatchString(id) {
		return ""
	}
	return "1 to 127 characters of a-z, 0-9, ., _ and -, in parts that begin with a letter or digit and are parted by /"
}

// Comment checks free text that goes into the audit log.
func Comment(path, s string) error {
	if len(s) > maxComment || strings.ContainsRune(s, 0) {
		return Fault(path, "at most %d bytes, without NUL", maxComment)
	}
	return nil
}

// Reason checks a comment that must be written: one without a letter or digit is refused.
func Reason(path, s string) error {
	if !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
		return Fault(path, "required: how you know")
	}
	return Comment(path, s)
}

// OneOf checks a value against a closed list. An empty value passes only where the list holds it.
func OneOf(path, value string, allowed ...string) error {
	var shown []string
	for _, a := range allowed {
		if a == value {
			return nil
		}
		if a != "" {
			shown = append(shown, a)
		}
	}
	return Fault(path, "%q is none of %s", value, strings.Join(shown, ", "))
}

// text returns the fault of a one-line value of at most limit bytes.
func text(s string, limit int) string {
	if len(s) > limit {
		return fmt.Sprintf("longer than %d bytes", limit)
	}
	if strings.IndexFunc(s, unicode.IsControl) >= 0 {
		return "holds a control character"
	}
	return ""
}

func labels(f *faults, path string, m map[string]string) {
	if len(m) > maxLabels {
		f.add(path, fmt.Sprintf("more than %d labels", maxLabels))
		return
	}
	for _, k := range sorted(m) {
		f.add(path+"["+shown(k)+"]", label(k, m[k]))
	}
}

func label(key, value string) string {
	if !validLabelKey(key) {
		return "the key must be [prefix/]name: a DNS name of at most 253 characters, and 1 to 63 of a-z, A-Z, 0-9, -, _ and ."
	}
	if value != "" && !labelName.MatchString(value) {
		return "the value must be at most 63 of a-z, A-Z, 0-9, -, _ and ., beginning and ending with a letter or digit"
	}
	return ""
}

func validLabelKey(key string) bool {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		return labelName.MatchString(key)
	}
	return len(prefix) <= maxPrefix && labelPrefix.MatchString(prefix) && labelName.MatchString(name)
}

// shown keeps a hostile key from filling the answer.
func shown(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ToValidUTF8(s, "")
}
