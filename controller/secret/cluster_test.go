package secret_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/secret"
)

func clusterBox(t *testing.T, seed string) *secret.Box {
	t.Helper()
	b, err := secret.New([]byte(strings.Repeat(seed, secret.KeySize)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestClusterCredentials(t *testing.T) {
	b := clusterBox(t, "a")
	c := secret.Cluster{Token: "s3cret"}
	got, err := b.OpenCluster("prod", b.SealCluster("prod", c))
	if err != nil || got.Token != c.Token || got.Kind() != "token" {
		t.Errorf("%v %v", got.Kind(), err)
	}
	if _, err := b.OpenCluster("other", b.SealCluster("prod", c)); !errors.Is(err, secret.ErrSealed) {
		t.Errorf("under another name: %v", err)
	}
	if _, err := b.OpenSSH("prod", b.SealCluster("prod", c)); !errors.Is(err, secret.ErrSealed) {
		t.Errorf("as something else: %v", err)
	}
	if s := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(s, "s3cret") {
		t.Errorf("it is printed as %s", s)
	}
	if (secret.Cluster{CertificatePEM: []byte("c")}).Kind() != "certificate" || (secret.Cluster{}).Kind() != "" {
		t.Error("kinds of credentials")
	}
}

// TestJoinTokens: one for each join, of the form that Kubernetes takes, and of no use to who knows other ones.
func TestJoinTokens(t *testing.T) {
	form := regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
	b, seen := clusterBox(t, "a"), map[string]bool{}
	letters := map[rune]int{}
	for i := range 2000 {
		id, sec := b.JoinToken(fmt.Sprint("c-", i))
		if !form.MatchString(id+"."+sec) || seen[sec] {
			t.Fatalf("token %d is %s.%s", i, id, sec)
		}
		seen[sec] = true
		for _, r := range sec {
			letters[r]++
		}
	}
	if len(letters) != 36 {
		t.Errorf("%d letters are used", len(letters))
	}
	for r, n := range letters {
		if want := 2000 * 16 / 36; n < want*8/10 || n > want*12/10 {
			t.Errorf("%c comes %d times, about %d are right", r, n, want)
		}
	}
	id, sec := b.JoinToken("c-1")
	again, sameSec := clusterBox(t, "a").JoinToken("c-1")
	if id != again || sec != sameSec {
		t.Error("another controller with the key makes another token")
	}
	if _, other := clusterBox(t, "b").JoinToken("c-1"); other == sec {
		t.Error("another key makes the same token")
	}
}
