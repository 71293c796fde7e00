package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
)

const changes = `# Changelog

Newest first.

## 0.2.0 (unreleased)

* New.

## 0.1.0 (2026-12-01)

* First.

## 0.1.0-rc.2

* Second try.
`

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNotes are the section of the version alone. A release refuses one that is missing or marked as unreleased.
func TestNotes(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "CHANGELOG.md"), changes)
	for version, want := range map[string]string{
		"0.1.0": "* First.", "0.2.0-rc.1": "* New.", "0.1.0-rc.1": "* First.", "0.2.0": "", "0.3.0": "", "0.1": "",
	} {
		var out bytes.Buffer
		err := run([]string{"notes", "--version", version, path}, &out)
		if want == "" && err == nil || want != "" && (err != nil || out.String() != "# Ingot "+version+"\n\n"+want+"\n") {
			t.Errorf("%s: %q, %v", version, out.String(), err)
		}
	}
}

// TestProvenance names each file with its sum, the commit, and what else went in.
func TestProvenance(t *testing.T) {
	sum, commit := strings.Repeat("ab", 32), strings.Repeat("0f", 20)
	path := write(t, filepath.Join(t.TempDir(), "SHA256SUMS"), sum+"  ingot_1.2.3_amd64.deb\n")
	args := []string{
		"provenance",
		"--tag",
		"v1.2.3",
		"--commit",
		commit,
		"--go",
		"go1.26.8",
		"--builder",
		"https://example.org/b",
		"--dependency",
		"pkg:deb/debian/linux@6.1?arch=source",
		"--dependency",
		"file:ca.crt=" + sum,
	}
	var out bytes.Buffer
	if err := run(append(args, path), &out); err != nil {
		t.Fatal(err)
	}
	var s statement
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	d := s.Predicate.BuildDefinition
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" ||
		len(s.Subject) != 1 || s.Subject[0].Name != "ingot_1.2.3_amd64.deb" || s.Subject[0].Digest["sha256"] != sum ||
		len(d.ResolvedDependencies) != 4 || d.ResolvedDependencies[0].Digest["gitCommit"] != commit ||
		d.ResolvedDependencies[2].URI != "pkg:deb/debian/linux@6.1?arch=source" || d.ResolvedDependencies[2].Digest != nil ||
		d.ResolvedDependencies[3].Digest["sha256"] != sum || s.Predicate.RunDetails.Builder.ID != "https://example.org/b" {
		t.Errorf("%s", out.String())
	}
	write(t, path, "not a sum\n")
	if err := run(append(args, path), io.Discard); err == nil {
		t.Error("a file that is no list of sums has a provenance")
	}
}

// TestSign signs with keys with and without a password, to the same bytes each time, and a flipped byte is noticed.
func TestSign(t *testing.T) {
	dir := t.TempDir()
	keyFile, sums := filepath.Join(dir, "key"), write(t, filepath.Join(dir, "SHA256SUMS"), "sums")
	if err := run([]string{"key", "--out", keyFile}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"key", "--out", keyFile}, io.Discard); err == nil {
		t.Error("a key was written over")
	}
	public, err := minisign.PublicKeyFromFile(keyFile + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	private, err := readKey(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := minisign.EncryptKey("secret", private)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(passwordVariable, "secret")
	var first []byte
	for _, path := range []string{keyFile, keyFile, write(t, filepath.Join(dir, "encrypted"), string(encrypted))} {
		args := []string{"sign", "--key", path, "--comment", "ingot 1.2.3", "--public", filepath.Join(dir, "pub"), sums}
		if err := run(args, io.Discard); err != nil {
			t.Fatal(err)
		}
		signature, err := os.ReadFile(sums + ".minisig")
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = bytes.Clone(signature)
		}
		if !bytes.Equal(signature, first) || !minisign.Verify(public, []byte("sums"), signature) {
			t.Errorf("%s: %s", path, signature)
		}
		for i, line := range bytes.SplitAfter(signature, []byte("\n")) {
			if len(line) < 20 || i == 0 { // The first comment is not signed.
				continue
			}
			line[19] ^= 2 // in the signature's own bytes
			if minisign.Verify(public, []byte("sums"), signature) {
				t.Errorf("a flipped byte in line %d verifies:\n%s", i, signature)
			}
			line[19] ^= 2
		}
	}
	if minisign.Verify(public, []byte("sumt"), first) {
		t.Error("another text verifies")
	}
	if err := os.Chmod(keyFile, 0o644); err != nil { //nolint:gosec // G302: it is refused for that
		t.Fatal(err)
	}
	if err := run([]string{"sign", "--key", keyFile, "--comment", "x", sums}, io.Discard); err == nil {
		t.Error("a key that others can read signs")
	}
}
