package hwid

import (
	"regexp"
	"strings"
)

// Text returns a text of DMI, or of a BMC, without surrounding space; empty where makers have not filled it in.
func Text(text string) string {
	text = strings.Trim(text, " \t\r\n\x00\u00a0")
	if unset.MatchString(text) {
		return ""
	}
	return text
}

// unset are texts that factories leave: they belong to no machine. The first lines are those of inxi 3.3.26,
// clean_unset and clean_dmi. Its "System .*" and "Chassis .*" are left out: they match names of products such as
// "System x3650 M5".
var unset = regexp.MustCompile(`(?i)^(` + strings.Join([]string{
	`[.\-_*x0 ]*`, `0x0+`, `bad index`, `.*default string.*`, `\[?empty\]?`, `\(?none\)?`, `n\.?/?a\.?`, `not .*`, `not`,
	`out of spec.*`, `.*to be filled.*`, `.*\bo\.e\.m\b.*`, `oem`, `undefined?`, `unknown?`, `unspecified`, `other`,
	`(asset ?tag|ser|serial|part) ?(num|number)?\d*`, `manufacturer\d*`,
	`(system|chassis|product|base ?board|board|mother ?board) (serial( number)?|(product )?name|manufacturer?|version` +
		`|sku( number)?|uuid|family|asset( tag)?( number)?)`,
	`no (asset tag|asset information|serial( number)?)`, `null`, `nil`, `invalid`, `unset`, `fill(ed)? by oem`,
	`0?12345678(9(0(123456)?)?)?`,
}, "|") + `)$`)

// UUID returns a UUID in lower case with hyphens; empty for one that factories leave in boards. Braces, a URN's prefix
// and absent hyphens are no difference. A text that is no UUID is an identity of its own, in lower case.
func UUID(text string) string {
	text = strings.ToLower(Text(text))
	plain := strings.TrimPrefix(strings.TrimPrefix(text, "urn:"), "uuid:")
	plain = strings.TrimSuffix(strings.TrimPrefix(plain, "{"), "}")
	m := uuidForm.FindStringSubmatch(plain)
	if m == nil {
		return text
	}
	digits := strings.Join(m[1:], "")
	if strings.Count(digits, digits[:2])*2 == len(digits) || boards[digits] {
		return ""
	}
	return strings.Join(m[1:], "-")
}

// SameUUID compares two UUIDs, in either byte order. known is false where either is empty or left by a factory.
func SameUUID(a, b string) (same, known bool) {
	a, b = UUID(a), UUID(b)
	return a == b || swapped(a) == b && b != "", a != "" && b != ""
}

var uuidForm = regexp.MustCompile(`^([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})$`)

// boards are UUIDs that many boards have, in digits. UUIDs of one byte, repeated, are the others: all zeros stand for
// one that can be set, all ones for none (SMBIOS 3.7, 7.2.1).
var boards = map[string]bool{
	"03000200040005000006000700080009": true, // AMI's
	"00020003000400050006000700080009": true, // the same in the byte order of SMBIOS 2.6
	"12345678123456789012123456789abc": true,
	"123456781234567890abcddeefaabbcc": true,
	"0123456789abcdef0123456789abcdef": true,
}

// SameSerial reports whether two serial numbers are known and the same: surrounding space and case are no difference.
func SameSerial(a, b string) bool {
	a, b = Text(a), Text(b)
	return a != "" && strings.EqualFold(a, b)
}
