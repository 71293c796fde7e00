package secret

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ingot-metal/ingot/internal/pki"
)

// OpenFile reads the key file. Where create is set and there is none, it makes one with a random key.
func OpenFile(path string, create bool) (*Box, error) {
	keys, err := readKeys(path)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err := makeFile(path); err != nil {
			return nil, fmt.Errorf("make key file: %w", err)
		}
		keys, err = readKeys(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	b, err := New(keys...)
	if err != nil {
		return nil, fmt.Errorf("read key file %s: %w", path, err)
	}
	return b, nil
}

// makeFile keeps a file that another process has made in between.
func makeFile(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	key := make([]byte, KeySize)
	rand.Read(key) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	text := "# Seals BMC credentials. Keep it secret, and keep a copy: without it they must be set anew.\n" +
		base64.StdEncoding.EncodeToString(key) + "\n"
	temp := fmt.Sprintf("%s.new-%d", path, os.Getpid())
	if err := pki.WriteFile(temp, []byte(text), 0o600); err != nil {
		return err
	}
	err := os.Link(temp, path) // unlike a rename it never replaces
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, os.Remove(temp), pki.SyncDir(dir))
}

func readKeys(path string) ([][]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%s can be read by everybody (mode %04o); make it 0600", path, info.Mode().Perm())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var keys [][]byte
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != KeySize {
			return nil, fmt.Errorf("%s: line %d is not %d bytes in base64", path, n, KeySize)
		}
		keys = append(keys, key)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return keys, nil
}
