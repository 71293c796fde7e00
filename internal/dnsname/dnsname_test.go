package dnsname_test

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/dnsname"
)

// TestMachineID: the good and the bad names of k8s.io/apimachinery's TestIsDNS1123Subdomain, up to 63 characters.
func TestMachineID(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a", "ab", "abc", "a1", "a-1", "a--1--2--b", "0", "01", "012", "1a", "1-a", "1--a--b--2",
		"a.a", "ab.a", "abc.a", "a1.a", "a-1.a", "a--1--2--b.a", "a.1", "0.a", "0.1", "1.2.3.4", "a.b.c.d.e", strings.Repeat("a", 63)} {
		if !dnsname.MachineID(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{"", "A", "ABC", "aBc", "A1", "A-1", "1-A", "-", "a-", "-a", "1-", "-1", "_", "a_", "_a", "a_b", "1_",
		"_1", "1_2", ".", "a.", ".a", "a..b", "srv7.", "1.", ".1", "1..2", " ", "a ", " a", "a b", "A.a", "aB.a", "A1.a", "a.-b",
		"a-.b", "a@b", "a,b", "a;b", "a\nb", "ä", strings.Repeat("a", 64)} {
		if dnsname.MachineID(s) {
			t.Errorf("%q is taken", s)
		}
	}
}
