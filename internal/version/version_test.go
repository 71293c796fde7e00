package version_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/version"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]version.Version{
		"v1.33.2": {1, 33, 2}, "v1.33.2+k3s1\n": {1, 33, 2}, "1.31.0-rc.1": {1, 31, 0}, "6.1.0-10-cloud-amd64": {6, 1, 0},
		"6.13-rc3-amd64": {6, 13, 0}, "15.8 (Debian 15.8-0+deb12u1)": {15, 8, 0}, "9.6.24": {9, 6, 24}, "17beta1": {17, 0, 0},
		"18": {18, 0, 0}, "4.2.1-Docker-3.2.0": {4, 2, 1}, "\ufeff 3.7": {3, 7, 0}, "5.10.0.1": {5, 10, 0}, "4.": {4, 0, 0},
		"2.x": {2, 0, 0},
	} {
		if got, ok := version.Parse(text); !ok || got != want {
			t.Errorf("%q is %v, %t; want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "v", "x1", "-1.2", ".5", "beta", "99999999999999999999", "1.99999999999999999999"} {
		if got, ok := version.Parse(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
	if v := (version.Version{Major: 4, Minor: 2}); !v.AtLeast(4, 2) || !v.AtLeast(3, 9) || v.AtLeast(4, 3) ||
		v.AtLeast(5, 0) {
		t.Error("AtLeast does not order versions")
	}
}

// releases are of Debian's kernels, of mainline, and of other distributions, in the order of linux-version.
var releases = []string{
	"", "2.6.32-5-amd64", "4.19.0-27-amd64", "5.10.0", "5.15.0-105-generic", "6.1.0", "6.1.0-9-amd64", "6.1.0-10",
	"6.1.0-10-amd64", "6.1.0-10-cloud-amd64", "6.1.0-56-cloud-amd64", "6.12.0", "6.12.9+bpo-amd64", "6.12.31-amd64",
	"6.13-rc1-amd64", "6.13-rc10-amd64", "6.13-trunk-amd64", "6.13", "6.13-amd64", "6.13.2", "10.0",
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for i, a := range releases {
		for j, b := range releases {
			if got := version.Compare(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%q and %q: %d", a, b, got)
			}
		}
	}
}

// TestCompareAsLinuxVersionDoes holds Compare against Debian's own program (package linux-base).
func TestCompareAsLinuxVersionDoes(t *testing.T) {
	t.Parallel()
	texts := append(
		[]string{"6.1.00010", "6.1.0--1", "6.1-", "6..1", "a", "a1", "a-1", "6.1-rc", "6.1-rcx", "6.1.0-010"},
		releases...)
	var pairs strings.Builder
	for _, a := range texts {
		for _, b := range texts {
			pairs.WriteString(a + "|" + b + "\n")
		}
	}
	cmd := exec.CommandContext(t.Context(), "perl", "-MDebianLinux=version_cmp", "-ne",
		`chomp; my ($a, $b) = split /\|/, $_, -1; print version_cmp($a, $b), "\n"`)
	cmd.Stdin = strings.NewReader(pairs.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("ask linux-version (Debian package linux-base; make deps): %v: %.300s", err, out)
	}
	answers := strings.Fields(string(out))
	pair := strings.Split(strings.TrimSuffix(pairs.String(), "\n"), "\n")
	if len(answers) != len(pair) {
		t.Fatalf("%d answers to %d questions", len(answers), len(pair))
	}
	for i, p := range pair {
		a, b, _ := strings.Cut(p, "|")
		if want, _ := strconv.Atoi(answers[i]); version.Compare(a, b) != want {
			t.Errorf("%q and %q: %d, linux-version: %d", a, b, version.Compare(a, b), want)
		}
	}
}

// FuzzVersions: an order has no circles, and a number that was read is read again.
func FuzzVersions(f *testing.F) {
	f.Add("6.1.0-9-amd64", "6.1.0-10-amd64", "6.13-rc1")
	f.Add("v1.33.2", "17beta1", "\ufeff4.2")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if version.Compare(a, b) != -version.Compare(b, a) || version.Compare(a, a) != 0 {
			t.Errorf("%q and %q have no order", a, b)
		}
		if version.Compare(a, b) <= 0 && version.Compare(b, c) <= 0 && version.Compare(a, c) > 0 {
			t.Errorf("%q, %q, %q go round", a, b, c)
		}
		v, ok := version.Parse(a)
		text := strconv.Itoa(v.Major) + "." + strconv.Itoa(v.Minor) + "." + strconv.Itoa(v.Patch)
		if again, same := version.Parse(text); ok && (!same || again != v) {
			t.Errorf("%q is %v, then %v", a, v, again)
		}
	})
}
