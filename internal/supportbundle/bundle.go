// Package supportbundle writes archives for those who help: a folder of small text files without secrets, bounded in
// size and time, whole also where some of it could not be had.
package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/obs/redact"
	"github.com/ingot-metal/ingot/internal/task"
)

// Bounds of a bundle: of a part, of all before they are compressed, of the time that a part may take, and of all.
const (
	PartBytes = 4 << 20
	AllBytes  = 32 << 20
	PartTime  = 20 * time.Second
	AllTime   = 2 * time.Minute
)

// Part is one file.
type Part struct {
	Name string
	// Make returns its text. A text beside an error is kept.
	Make func(ctx context.Context) ([]byte, error)
}

// JSON is a part of the value that get returns.
func JSON[T any](name string, get func(ctx context.Context) (T, error)) Part {
	return Part{Name: name, Make: func(ctx context.Context) ([]byte, error) {
		v, err := get(ctx)
		if err != nil {
			return nil, err
		}
		return json.MarshalIndent(v, "", "  ")
	}}
}

// Manifest lists the parts of a bundle, and the missing parts with the reasons.
type Manifest struct {
	Program   string    `json:"program"`
	Version   string    `json:"version"`
	GoVersion string    `json:"go_version"`
	System    string    `json:"system"`
	MadeAt    time.Time `json:"made_at"`
	Took      string    `json:"took"`
	Files     []string  `json:"files"`
	// Missing is why a part is absent, by its name, and Cut which are not whole.
	Missing map[string]string `json:"missing,omitempty"`
	Cut     []string          `json:"cut,omitempty"`
}

// Config is what a bundle is made of.
type Config struct {
	Program, Version string
	// Folder is what all files are in.
	Folder string
	Parts  []Part
	// Secrets are masked wherever they stand, beside what looks like one.
	Secrets []string
	Now     time.Time
	// PartTime and AllTime are the package's where they are 0.
	PartTime, AllTime time.Duration
}

// Write writes the bundle. An error means that it could not be written; what could not be had is in the manifest.
func Write(ctx context.Context, w io.Writer, c Config) (Manifest, error) {
	began := time.Now()
	if c.PartTime == 0 {
		c.PartTime = PartTime
	}
	if c.AllTime == 0 {
		c.AllTime = AllTime
	}
	ctx, cancel := context.WithTimeout(ctx, c.AllTime)
	defer cancel()
	m := Manifest{Program: c.Program, Version: c.Version, GoVersion: runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH, MadeAt: c.Now.UTC(), Missing: map[string]string{}}
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	left := AllBytes
	for _, p := range c.Parts {
		text, err := c.make(ctx, p)
		if err != nil {
			m.Missing[p.Name] = c.clean(err.Error())
		}
		if len(text) == 0 {
			continue
		}
		text, cut := bound([]byte(c.clean(string(text))), min(PartBytes, left))
		if cut {
			m.Cut = append(m.Cut, p.Name)
		}
		left -= len(text)
		m.Files = append(m.Files, p.Name)
		if err := c.add(archive, p.Name, text); err != nil {
			return m, err
		}
	}
	m.Took = time.Since(began).Round(time.Millisecond).String()
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, fmt.Errorf("write manifest: %w", err)
	}
	if err := c.add(archive, "bundle.json", text); err != nil {
		return m, err
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		return m, fmt.Errorf("write bundle: %w", err)
	}
	return m, nil
}

// make bounds the time of a part; one that does not end is left behind.
func (c Config) make(ctx context.Context, p Part) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.PartTime)
	defer cancel()
	type made struct {
		text []byte
		err  error
	}
	done := make(chan made, 1)
	task.Background("part of a bundle", func() {
		text, err := p.Make(ctx)
		done <- made{text, err}
	})
	select {
	case got := <-done:
		return got.text, got.err
	case <-ctx.Done():
		return nil, fmt.Errorf("took longer than %v", c.PartTime)
	}
}

func (c Config) add(archive *tar.Writer, name string, text []byte) error {
	h := &tar.Header{Name: path.Join(c.Folder, name), Mode: 0o600, Size: int64(len(text)), ModTime: c.Now,
		Format: tar.FormatPAX}
	if err := archive.WriteHeader(h); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err := archive.Write(text); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// shortest is the length from which a value counts as a secret: shorter ones stand in too many words.
const shortest = 6

func (c Config) clean(s string) string {
	s = redact.String(s)
	for _, secret := range c.Secrets {
		if len(secret) >= shortest {
			s = strings.ReplaceAll(s, secret, redact.Mask)
		}
	}
	return s
}

// bound truncates a long text to its end, which is the important part of a log.
func bound(text []byte, most int) (out []byte, cut bool) {
	if len(text) <= most {
		return text, false
	}
	text = text[len(text)-most:]
	if i := bytes.IndexByte(text, '\n'); i >= 0 && i < len(text)-1 {
		text = text[i+1:]
	}
	return text, true
}
