package lease

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// File is a Store in one file: each lease a line of JSON, the last line about an address is the one that counts. A
// line that a crash cut off at the end is dropped. It suits one segment of a small site, and tests.
type File struct {
	mu   sync.Mutex
	file *os.File
	all  map[key]Lease
}

type key struct{ segment, address string }

func keyOf(l Lease) key { return key{l.Segment, l.Address.String()} }

var _ Store = (*File)(nil)

// OpenFile reads the file, if there is one, and writes it anew without the lines that no longer count.
func OpenFile(path string) (*File, error) {
	f := &File{all: map[key]Lease{}}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read lease file: %w", err)
	}
	if err := f.parse(text); err != nil {
		return nil, fmt.Errorf("read lease file %s: %w", path, err)
	}
	if f.file, err = f.compact(path); err != nil {
		return nil, fmt.Errorf("write lease file: %w", err)
	}
	return f, nil
}

func (f *File) parse(text []byte) error {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if !bytes.HasSuffix(line, []byte("\n")) {
			return nil // it was never finished, so nobody was told of it
		}
		var l Lease
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		f.all[keyOf(l)] = l
	}
	return nil
}

// compact writes what counts beside the file, puts it in its place and gives it open for more.
func (f *File) compact(path string) (*os.File, error) {
	beside := path + ".new"
	file, err := os.OpenFile(beside, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	all := make([]Lease, 0, len(f.all))
	for _, l := range f.all {
		all = append(all, l)
	}
	if err := appendLines(file, all); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := os.Rename(beside, path); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// appendLines is done when the lines are on the disk.
func appendLines(file *os.File, leases []Lease) error {
	w := bufio.NewWriter(file)
	enc := json.NewEncoder(w)
	for _, l := range leases {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return file.Sync()
}

// LoadLeases gives the leases of a segment.
func (f *File) LoadLeases(_ context.Context, segment string) ([]Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Lease
	for k, l := range f.all {
		if k.segment == segment {
			out = append(out, l)
		}
	}
	return out, nil
}

// SaveLeases appends and flushes.
func (f *File) SaveLeases(_ context.Context, leases []Lease) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := appendLines(f.file, leases); err != nil {
		return fmt.Errorf("append to lease file: %w", err)
	}
	for _, l := range leases {
		f.all[keyOf(l)] = l
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// Memory is a Store that lives as long as the process. The zero value is empty.
type Memory struct {
	mu  sync.Mutex
	all map[key]Lease
}

var _ Store = (*Memory)(nil)

// LoadLeases gives the leases of a segment.
func (m *Memory) LoadLeases(_ context.Context, segment string) ([]Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Lease
	for k, l := range m.all {
		if k.segment == segment {
			out = append(out, l)
		}
	}
	return out, nil
}

// SaveLeases keeps copies.
func (m *Memory) SaveLeases(_ context.Context, leases []Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[key]Lease{}
	}
	for _, l := range leases {
		m.all[keyOf(l)] = l
	}
	return nil
}
