// Package version reads and compares the versions of other people's programs: kernels, PostgreSQL, kubeadm, NetBox. No
// other code takes such a text apart, so that "6.1.0-9" is older than "6.1.0-10" everywhere.
package version

import (
	"cmp"
	"strconv"
	"strings"
)

// Version is the numbers that a version begins with. A number that is not there is 0.
type Version struct{ Major, Minor, Patch int }

// mostDigits is more digits than a number of a version has.
const mostDigits = 9

// byteOrderMark is what some programs put before a text.
const byteOrderMark = "\ufeff"

// Parse reads the numbers at the start of a text such as "v1.33.2", "6.1.0-10-cloud-amd64" or "17beta1". Space and a
// byte order mark around it do not count, and neither does one v before the first number. It reports whether the text
// begins with a number.
func Parse(text string) (Version, bool) {
	text = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), byteOrderMark))
	if len(text) > 1 && (text[0] == 'v' || text[0] == 'V') {
		text = text[1:]
	}
	var v Version
	for i, part := range []*int{&v.Major, &v.Minor, &v.Patch} {
		n := digits(text)
		if n == 0 || n > mostDigits {
			return v, i > 0 && n == 0
		}
		*part, _ = strconv.Atoi(text[:n]) // digits alone, and few enough
		if text = text[n:]; !strings.HasPrefix(text, ".") {
			break
		}
		text = text[1:]
	}
	return v, true
}

// AtLeast reports whether the version is that one or a later one.
func (v Version) AtLeast(major, minor int) bool {
	return cmp.Or(cmp.Compare(v.Major, major), cmp.Compare(v.Minor, minor)) >= 0
}

// Compare orders whole texts as Debian's linux-version does (linux-base, DebianLinux.pm, version_cmp): numbers by
// value, the texts between them by their bytes, and "-rc" and "-trunk" before the version that they lead to.
func Compare(a, b string) int {
	for {
		x, y := component(a), component(b)
		if c := compareParts(x, y); c != 0 || x == "" && y == "" {
			return c
		}
		a, b = a[len(x):], b[len(y):]
	}
}

func compareParts(x, y string) int {
	switch {
	case preRelease(x) != preRelease(y):
		if preRelease(x) {
			return -1
		}
		return 1
	case digits(x) > 0 && digits(y) > 0:
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
	}
	return strings.Compare(x, y)
}

func preRelease(part string) bool { return part == "-rc" || part == "-trunk" }

// component is the first number of a text, or what stands before the next number or hyphen.
func component(s string) string {
	if n := digits(s); n > 0 || s == "" {
		return s[:n]
	}
	if n := strings.IndexFunc(s[1:], func(r rune) bool { return r == '-' || digit(r) }); n >= 0 {
		return s[:n+1]
	}
	return s
}

func digits(s string) int {
	if n := strings.IndexFunc(s, func(r rune) bool { return !digit(r) }); n >= 0 {
		return n
	}
	return len(s)
}

func digit(r rune) bool { return r >= '0' && r <= '9' }
