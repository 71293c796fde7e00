package position

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// File keeps a mark over restarts of the controller.
type File string

// Load reads the mark; the zero mark where there is none. A damaged file is an error, and is replaced by the next Save.
func (f File) Load() (m Mark, err error) {
	b, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return Mark{}, fmt.Errorf("read the database's last position: %w", err)
	}
	return m, nil
}

// Save replaces the mark. It does not wait for the disk: after a crash of the machine an older mark counts, which is
// true as well.
func (f File) Save(m Mark) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write the database's last position: %w", err)
	}
	next := string(f) + ".new"
	if err := os.WriteFile(next, b, 0o600); err != nil {
		return fmt.Errorf("write the database's last position: %w", err)
	}
	if err := os.Rename(next, string(f)); err != nil {
		return fmt.Errorf("write the database's last position: %w", err)
	}
	return nil
}
