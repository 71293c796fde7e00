package secret

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func key(n byte) []byte { return bytes.Repeat([]byte{n}, KeySize) }

func box(t interface{ Fatal(...any) }, keys ...[]byte) *Box {
	b, err := New(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSealing: a sealed text opens for its name and with its key, and for nothing else; no bit of it may change.
func TestSealing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k1 := rapid.SliceOfN(rapid.Byte(), KeySize, KeySize).Draw(t, "key")
		k2 := rapid.SliceOfN(rapid.Byte(), KeySize, KeySize).Filter(func(k []byte) bool { return !bytes.Equal(k, k1) }).Draw(
			t, "other key")
		name := rapid.String().Draw(t, "name")
		other := rapid.String().Filter(func(s string) bool { return s != name }).Draw(t, "other name")
		plain := rapid.SliceOf(rapid.Byte()).Draw(t, "plain")
		b := box(t, k1)
		sealed := b.Seal(name, plain)
		if got, err := b.Open(name, sealed); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("open: %x, %v", got, err)
		}
		if bytes.Equal(sealed, b.Seal(name, plain)) {
			t.Fatal("the same nonce twice")
		}
		if len(plain) >= 8 && bytes.Contains(sealed, plain) {
			t.Fatal("it can be read")
		}
		if got, err := box(t, k2, k1).Open(name, sealed); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("after a change of keys: %x, %v", got, err)
		}
		if _, err := b.Open(other, sealed); !errors.Is(err, ErrSealed) {
			t.Fatalf("under another name: %v", err)
		}
		if _, err := box(t, k2).Open(name, sealed); !errors.Is(err, ErrSealed) {
			t.Fatalf("with another key: %v", err)
		}
		bit := rapid.IntRange(0, 8*len(sealed)-1).Draw(t, "bit")
		changed := bytes.Clone(sealed)
		changed[bit/8] ^= 1 << (bit % 8)
		if _, err := b.Open(name, changed); !errors.Is(err, ErrSealed) {
			t.Fatalf("with bit %d changed: %v", bit, err)
		}
		cut := rapid.IntRange(0, len(sealed)-1).Draw(t, "cut")
		if _, err := b.Open(name, sealed[:cut]); !errors.Is(err, ErrSealed) {
			t.Fatalf("cut to %d bytes: %v", cut, err)
		}
	})
}

func TestBMCCredentials(t *testing.T) {
	b := box(t, key(1))
	c := BMC{Username: "admin", Password: "hunter2\"\\"}
	sealed := b.SealBMC("rack", c)
	if got, err := b.OpenBMC("rack", sealed); err != nil || got != c {
		t.Errorf("%v", err)
	}
	if _, err := b.OpenBMC("rack-2", sealed); !errors.Is(err, ErrSealed) {
		t.Errorf("moved to another name: %v", err)
	}
	if _, err := b.OpenBMC("rack", b.Seal(bmcName("rack"), []byte("rubbish"))); !errors.Is(err, ErrSealed) {
		t.Errorf("%v", err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", c, c, c, []BMC{c}); strings.Contains(text, "hunter2") ||
		strings.Contains(text, "admin") {
		t.Errorf("printed: %s", text)
	}
}

func TestBadKeys(t *testing.T) {
	for _, keys := range [][][]byte{{}, {key(1)[:31]}, {key(1), nil}} {
		if _, err := New(keys...); err == nil {
			t.Errorf("%v passed", keys)
		}
	}
}

func TestTheKeyFileIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secrets", "bmc.key")
	if _, err := OpenFile(path, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not to be made: %v", err)
	}
	first, err := OpenFile(path, true)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	sealed := first.Seal("x", []byte("y"))
	again, err := OpenFile(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Open("x", sealed); err != nil {
		t.Errorf("another key at the second start: %v", err)
	}
	// A controller that comes second in making it takes the first one's.
	if err := makeFile(path); err != nil {
		t.Fatal(err)
	}
	if again, err = OpenFile(path, true); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Open("x", sealed); err != nil {
		t.Errorf("the file was replaced: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestKeyFiles(t *testing.T) {
	line := func(n byte) string { return base64.StdEncoding.EncodeToString(key(n)) }
	write := func(mode os.FileMode, lines ...string) string {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old := box(t, key(1)).Seal("x", []byte("y"))
	b, err := OpenFile(write(0o440, "# new", line(2), "", " "+line(1)+" "), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open("x", old); err != nil {
		t.Errorf("an old secret: %v", err)
	}
	if _, err := box(t, key(2)).Open("x", b.Seal("x", nil)); err != nil {
		t.Errorf("the first key must seal: %v", err)
	}
	for name, path := range map[string]string{
		"empty": write(0o600), "comments": write(0o600, "# nothing"), "short": write(0o600, line(1)[:40]),
		"text":        write(0o600, "secret"),
		"open to all": write(0o644, line(1)), "missing": filepath.Join(t.TempDir(), "no"), "directory": t.TempDir(),
	} {
		if _, err := OpenFile(path, false); err == nil {
			t.Errorf("%s passed", name)
		} else if strings.Contains(err.Error(), line(1)[:40]) || strings.Contains(err.Error(), "secret\"") {
			t.Errorf("%s: the error shows the file's content: %v", name, err)
		}
	}
}
