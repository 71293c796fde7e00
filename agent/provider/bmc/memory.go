package bmc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Record is the stored state of a BMC. It holds no secret.
type Record struct {
	// Protocol that was found by probing.
	Protocol Protocol `json:"protocol,omitempty"`
	// Pin is the SHA-256 of the certificate that it showed first, in hex.
	Pin string `json:"pin,omitempty"`
	// Offered is the SHA-256 of another certificate, which it shows since. Until an admin trusts it, or the pinned one is
	// back, the BMC gets no credentials.
	Offered string `json:"offered,omitempty"`
	Budget  Budget `json:"budget,omitzero"`
	// Taken are the credentials that it took last, as ref@version.
	Taken string `json:"taken,omitempty"`
	// Unparked is when an admin last had it asked again, by the controller's database.
	Unparked time.Time `json:"unparked,omitzero"`
}

// Memory keeps records over restarts, by Endpoint.Key. What was never saved loads as the zero Record.
type Memory interface {
	Load(key string) (Record, error)
	Save(key string, r Record) error
}

// FileMemory keeps all records in one file, which need not be there yet.
func FileMemory(path string) Memory { return &fileMemory{path: path} }

type fileMemory struct {
	mu   sync.Mutex
	path string
}

func (m *fileMemory) Load(key string) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, err := m.read()
	return all[key], err
}

// Save is durable against a kill of the process. After a crash of the machine an older record may be back, which costs
// one more attempt.
func (m *fileMemory) Save(key string, r Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, err := m.read()
	if err != nil {
		return err
	}
	all[key] = r
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return fmt.Errorf("encode memory of BMCs: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(m.path), filepath.Base(m.path)+".*")
	if err != nil {
		return fmt.Errorf("write memory of BMCs: %w", err)
	}
	_, err = temp.Write(text)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), m.path)
	}
	if err != nil {
		return fmt.Errorf("write memory of BMCs: %w", errors.Join(err, os.Remove(temp.Name())))
	}
	return nil
}

func (m *fileMemory) read() (map[string]Record, error) {
	all := map[string]Record{}
	text, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read memory of BMCs: %w", err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read memory of BMCs: %w", err)
	}
	return all, nil
}

// noMemory is the memory of a process without one: links keep their record themselves.
type noMemory struct{}

func (noMemory) Load(string) (Record, error) { return Record{}, nil }

func (noMemory) Save(string, Record) error { return nil }
