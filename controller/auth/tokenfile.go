package auth

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/filter"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
)

// TokenPrefix starts every token that NewToken makes, so that it can be recognised (and masked) wherever it turns up.
const TokenPrefix = "ingotb_"

type tokenHash [sha256.Size]byte

// token is one line of the file.
type token struct {
	name  string
	scope access.Scope
	hash  tokenHash
	// selection is the filter of the machines that it is good for. Empty stands for all.
	selection string
}

// NewToken makes a token of 256 random bits and the hash that goes into the file.
func NewToken() (secret, hash string) {
	secret = TokenPrefix + ids.Secret(sha256.Size)
	return secret, HashToken(secret)
}

// HashToken returns the lower-case hexadecimal SHA-256 of a token.
func HashToken(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}

// tokenSet is the content of a file. It is never changed.
type tokenSet []token

// find compares with every token in constant time each, found or not.
func (s tokenSet) find(h tokenHash) (token, bool) {
	at := -1
	for i := range s {
		if subtle.ConstantTimeCompare(s[i].hash[:], h[:]) == 1 {
			at = i
		}
	}
	if at < 0 {
		return token{}, false
	}
	return s[at], true
}

// namePattern keeps names usable as an opaque actor in the audit log.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// parseTokens reads the whole file and reports all faults, each with its line. It never repeats a hash or the text in
// its place: that may be a token.
func parseTokens(file []byte) (tokenSet, error) {
	var set tokenSet
	var faults []error
	scanner := bufio.NewScanner(bytes.NewReader(file))
	for n := 1; scanner.Scan(); n++ {
		text, _, _ := strings.Cut(scanner.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		t, err := parseToken(fields)
		if err == nil {
			err = set.clash(t)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("line %d: %w", n, err))
			continue
		}
		set = append(set, t)
	}
	if err := scanner.Err(); err != nil {
		faults = append(faults, err)
	}
	if len(set) == 0 && len(faults) == 0 {
		faults = append(faults, errors.New("there is no token in it"))
	}
	return set, errors.Join(faults...)
}

func parseToken(fields []string) (token, error) {
	if len(fields) < 3 {
		return token{}, fmt.Errorf("has %d fields, want 3 and a selection: name scope sha256 [selection]", len(fields))
	}
	if !namePattern.MatchString(fields[0]) {
		return token{}, fmt.Errorf("the name must match %s", namePattern)
	}
	scope, err := access.ParseScope(fields[1])
	if err != nil {
		return token{}, errors.New("the scope is none of read, operate, admin, report")
	}
	t := token{name: fields[0], scope: scope}
	hash, err := hex.DecodeString(fields[2])
	if err != nil || len(hash) != len(t.hash) || fields[2] != strings.ToLower(fields[2]) {
		return token{}, errors.New("the third field is not a SHA-256 in 64 lower-case hexadecimal digits")
	}
	copy(t.hash[:], hash)
	terms, err := filter.Parse(strings.Join(fields[3:], " "))
	if err != nil {
		return token{}, fmt.Errorf("the selection: %w", err)
	}
	t.selection = filter.Format(terms)
	return t, nil
}

func (s tokenSet) clash(t token) error {
	for _, other := range s {
		if other.name == t.name {
			return fmt.Errorf("the name %s is there already", t.name)
		}
		if other.hash == t.hash {
			return fmt.Errorf("it has the same token as %s", other.name)
		}
	}
	return nil
}

// AddToken makes a token, appends its line to the file and returns the token, which is stored nowhere. A file with
// faults stays as it is. Owner and mode of the file are kept; a file that is made is of mode 0600.
func AddToken(path, name string, scope access.Scope) (secret string, err error) {
	return putToken(path, name, scope, false)
}

// ReplaceToken is AddToken, but ends the token that has the name, if there is one.
func ReplaceToken(path, name string, scope access.Scope) (secret string, err error) {
	return putToken(path, name, scope, true)
}

func putToken(path, name string, scope access.Scope, replace bool) (secret string, err error) {
	file, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read tokens: %w", err)
	}
	if replace {
		file = withoutToken(file, name)
	}
	if len(file) > 0 && file[len(file)-1] != '\n' {
		file = append(file, '\n')
	}
	if len(file) == 0 {
		file = []byte("# name scope sha256-of-the-token\n")
	}
	secret, hash := NewToken()
	file = fmt.Appendf(file, "%s %s %s\n", name, scope, hash)
	if _, err := parseTokens(file); err != nil {
		return "", fmt.Errorf("add token to %s: %w", path, err)
	}
	return secret, replaceFile(path, file)
}

func withoutToken(file []byte, name string) []byte {
	var kept []byte
	for line := range bytes.Lines(file) {
		if fields := bytes.Fields(line); len(fields) == 0 || string(fields[0]) != name {
			kept = append(kept, line...)
		}
	}
	return kept
}

// replaceFile keeps the file readable for the controller's user when root replaces it.
func replaceFile(path string, content []byte) error {
	old, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return pki.WriteFile(path, content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	owner, ok := old.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return pki.WriteFile(path, content, old.Mode().Perm())
	}
	return pki.WriteFileFor(path, content, old.Mode().Perm(), int(owner.Uid), int(owner.Gid))
}
