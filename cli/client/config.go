package client

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
)

// File is the configuration file: named contexts, one of which is current.
type File struct {
	CurrentContext string             `yaml:"current_context,omitempty"`
	Contexts       map[string]Context `yaml:"contexts,omitempty"`
}

// Context is the connection to one controller.
type Context struct {
	// Server is host:port of the controller's API.
	Server string `yaml:"server"`
	// CAFile is a PEM file with the root that signed the server's certificate.
	CAFile string `yaml:"ca_file,omitempty"`
	// CAHash pins that root instead: SHA-256 of its DER, hex.
	CAHash string `yaml:"ca_hash,omitempty"`
	// Token is the bearer token; TokenFile is better.
	Token     string `yaml:"token,omitempty"`
	TokenFile string `yaml:"token_file,omitempty"`
}

// DefaultPath is $INGOT_CONFIG, or ~/.config/ingot/config.yaml ($XDG_CONFIG_HOME is honoured). Windows has the home
// directory in USERPROFILE.
func DefaultPath(getenv func(string) string) string {
	if p := getenv("INGOT_CONFIG"); p != "" {
		return p
	}
	base := getenv("XDG_CONFIG_HOME")
	if base == "" {
		base = filepath.Join(cmp.Or(getenv("HOME"), getenv("USERPROFILE")), ".config")
	}
	return filepath.Join(base, "ingot", "config.yaml")
}

// Load reads the file. No file is an empty one; an unknown key is an error.
func Load(path string) (*File, error) {
	f := &File{Contexts: map[string]Context{}}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	err = dec.Decode(f)
	if err == nil && !errors.Is(dec.Decode(&yaml.Node{}), io.EOF) {
		err = errors.New("there is more than one YAML document in the file")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}
	return f, nil
}

// Save replaces the file, so that a reader sees the old one or the new one. Only its owner may read it.
func (f *File) Save(path string) error {
	raw, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return replacePrivate(path, raw)
}

// replacePrivate replaces a file that its owner alone may read.
func replacePrivate(path string, raw []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make configuration folder: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".config-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	_, err = tmp.Write(raw)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write configuration: %w", err), os.Remove(tmp.Name()))
	}
	return nil
}

// Names are the names of the contexts in order.
func (f *File) Names() []string {
	names := make([]string, 0, len(f.Contexts))
	for n := range f.Contexts {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Redacted is a copy without tokens, for showing.
func (f *File) Redacted() *File {
	out := &File{CurrentContext: f.CurrentContext, Contexts: map[string]Context{}}
	for name, c := range f.Contexts {
		if c.Token != "" {
			c.Token = "REDACTED"
		}
		out.Contexts[name] = c
	}
	return out
}
