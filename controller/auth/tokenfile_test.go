package auth

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestScopeOrder(t *testing.T) {
	all := []access.Scope{access.ScopeRead, access.ScopeOperate, access.ScopeAdmin}
	for i, have := range all {
		for j, need := range all {
			if have.Covers(need) != (i >= j) {
				t.Errorf("%s covers %s: %v", have, need, have.Covers(need))
			}
		}
		if back, err := access.ParseScope(have.String()); err != nil || back != have {
			t.Errorf("%s came back as %s, %v", have, back, err)
		}
		if access.Scope(0).Covers(have) {
			t.Errorf("no scope covers %s", have)
		}
	}
	if access.Scope(0).Covers(0) {
		t.Error("no scope covers no scope")
	}
}

// An installer's scope opens its one call, and who may operate may make it too; nothing else goes either way.
func TestScopeReportStandsAside(t *testing.T) {
	for need, want := range map[access.Scope]bool{access.ScopeReport: true, access.ScopeRead: false,
		access.ScopeOperate: false, access.ScopeAdmin: false} {
		if access.ScopeReport.Covers(need) != want {
			t.Errorf("report covers %s: %v", need, !want)
		}
	}
	for have, want := range map[access.Scope]bool{access.ScopeRead: false, access.ScopeOperate: true,
		access.ScopeAdmin: true, 0: false} {
		if have.Covers(access.ScopeReport) != want {
			t.Errorf("%s covers report: %v", have, !want)
		}
	}
	if s, err := access.ParseScope("report"); err != nil || s != access.ScopeReport {
		t.Errorf("%v %v", s, err)
	}
}

func TestParseTokens(t *testing.T) {
	h1, h2 := HashToken("one"), HashToken("two")
	set, err := parseTokens([]byte("# tokens\n\nplatform operate " + h1 + " # since May\n\talice.b  admin\t" + h2 + "\n"))
	if err != nil || len(set) != 2 || set[0].name != "platform" || set[1].scope != access.ScopeAdmin {
		t.Fatalf("%+v, %v", set, err)
	}
}

func TestFaultsNameTheirLinesAndNotTheSecrets(t *testing.T) {
	secret, hash := NewToken()
	file := strings.Join([]string{
		"good read " + hash,
		"two fields",
		"Bad!name read " + HashToken("x"),
		"scope emperor " + HashToken("y"),
		"short read abcdef",
		"plain read " + secret, // the token itself where its hash belongs
		secret + " read " + HashToken("w"),
		"upper read " + strings.ToUpper(HashToken("z")),
		"good read " + HashToken("v"), // the name again
		"other read " + hash,          // the token again
	}, "\n")
	_, err := parseTokens([]byte(file))
	if err == nil {
		t.Fatal("no fault found")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 9 {
		t.Errorf("%d faults, want 9:\n%v", len(lines), err)
	}
	for i, line := range lines {
		if want := "line " + string(rune('2'+i)); i < 8 && !strings.HasPrefix(line, want) {
			t.Errorf("%q does not start with %q", line, want)
		}
	}
	if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), hash) {
		t.Errorf("a secret is in %v", err)
	}
}

func TestEmptyFileIsAFault(t *testing.T) {
	for _, file := range []string{"", "# nothing\n\n"} {
		if _, err := parseTokens([]byte(file)); err == nil {
			t.Errorf("%q passed", file)
		}
	}
}

func TestNewTokens(t *testing.T) {
	a, hash := NewToken()
	b, _ := NewToken()
	if a == b || !strings.HasPrefix(a, TokenPrefix) || len(a) != len(TokenPrefix)+43 || hash != HashToken(a) {
		t.Errorf("%q %q %q", a, b, hash)
	}
}

func TestAddToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	one, err := AddToken(path, "one", access.ScopeRead)
	if err != nil {
		t.Fatal(err)
	}
	two, err := AddToken(path, "two", access.ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := AddToken(path, "two", access.ScopeRead); err == nil {
		t.Error("a name was given twice")
	}
	if _, err := AddToken(path, "Not A Name", access.ScopeRead); err == nil {
		t.Error("a bad name was written")
	}
	tokens, err := OpenTokens(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := tokens.authenticate(one, access.ScopeRead); err != nil || c.Name != "one" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := tokens.authenticate(two, access.ScopeAdmin); err != nil || c.Name != "two" {
		t.Errorf("%+v, %v", c, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	file, err := os.ReadFile(path)
	if err != nil || bytes.Contains(file, []byte(one)) {
		t.Errorf("the file holds the token itself, or: %v", err)
	}
}

func TestBrokenFileKeepsTheOldTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	secret, err := AddToken(path, "one", access.ScopeRead)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	tokens, err := OpenTokens(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range []string{"", "nonsense\n"} {
		log.Reset()
		if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := tokens.Reload(); err == nil {
			t.Errorf("%q was loaded", broken)
		}
		if !strings.Contains(log.String(), "the old ones stay in force") || !strings.Contains(log.String(), "error=") {
			t.Errorf("log: %s", log.String())
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Reload(); err == nil {
		t.Error("a missing file was loaded")
	}
	if _, err := tokens.authenticate(secret, access.ScopeRead); err != nil {
		t.Errorf("the old token: %v", err)
	}
}

func TestOpenNeedsAGoodFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenTokens(filepath.Join(dir, "missing"), slog.Default()); err == nil {
		t.Error("a missing file was opened")
	}
}

// TestAddTokenKeepsTheOwner: root adds a token, and the controller's user can still read the file.
func TestAddTokenKeepsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if _, err := AddToken(path, "one", access.ScopeRead); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(path, 0, 65534), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	if _, err := AddToken(path, "two", access.ScopeAdmin); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid != 0 || owner.Gid != 65534 || info.Mode().Perm() != 0o640 {
		t.Errorf("the file is of %+v, mode %v", owner, info.Mode())
	}
}

func TestReplaceTokenEndsTheOldOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	for range 2 { // the first time there is none to replace
		if _, err := ReplaceToken(path, "one", access.ScopeRead); err != nil {
			t.Fatal(err)
		}
	}
	old, err := AddToken(path, "two", access.ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := ReplaceToken(path, "two", access.ScopeOperate)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := OpenTokens(path, testkit.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.authenticate(old, access.ScopeRead); err == nil {
		t.Error("the replaced token still works")
	}
	if c, err := tokens.authenticate(secret, access.ScopeOperate); err != nil || c.Name != "two" {
		t.Errorf("the new token: %+v, %v", c, err)
	}
}
