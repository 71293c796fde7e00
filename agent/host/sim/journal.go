package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
)

// JournalName is the file in a world's directory that holds the journal, one JSON object per line.
const JournalName = "effects.jsonl"

// Stage is the kind of a record of the journal.
type Stage string

const (
	// StageAsked: a call for an effect reached the world. Its outcome is open.
	StageAsked Stage = "asked"
	// StageEffect: the effect happened. Only these count. A repave counts from its first byte.
	StageEffect Stage = "effect"
	// StageVerified: a repave was written to the end and read back.
	StageVerified Stage = "verified"
	// StageLied: the machine claimed an effect that did not happen.
	StageLied Stage = "lied"
	// StageDropped: an accepted reboot came due while the machine was off.
	StageDropped Stage = "dropped"
)

// EffectRecord is one line of the journal.
type EffectRecord struct {
	At        time.Time `json:"at"`
	MachineID string    `json:"machine_id"` // the machine of this world that it happened to
	Seq       uint64    `json:"seq"`        // counted per machine
	Stage     Stage     `json:"stage"`
	Kind      Kind      `json:"kind"`
	// CommandID, OperationID and Attempt are those of the effect, Target its machine: who it was meant for.
	CommandID   string `json:"command_id"`
	OperationID string `json:"operation_id,omitempty"`
	Target      string `json:"target,omitempty"`
	Attempt     int    `json:"attempt,omitempty"`
	Fault       Mode   `json:"fault,omitempty"`   // what the script made of it
	BootID      string `json:"boot_id,omitempty"` // of the machine, after it
	Detail      string `json:"detail,omitempty"`  // such as the digest written
}

// Effect is the command that caused the record.
func (r EffectRecord) Effect() effect.Cause {
	return effect.Cause{CommandID: r.CommandID, OperationID: r.OperationID, MachineID: r.Target, Attempt: r.Attempt}
}

// CountByCommand counts the effects that happened, by command id. With kinds given, only those count.
func CountByCommand(records []EffectRecord, kinds ...Kind) map[string]int {
	counts := make(map[string]int)
	for _, r := range records {
		if r.Stage == StageEffect && wanted(r.Kind, kinds) {
			counts[r.CommandID]++
		}
	}
	return counts
}

func wanted(k Kind, kinds []Kind) bool {
	for _, w := range kinds {
		if w == k {
			return true
		}
	}
	return len(kinds) == 0
}

// ReadJournal returns every record of the world in dir, oldest first, and those that a killed process owed to the
// journal after them. It changes nothing; an effect that is due but was not looked at since is not in it (World.Settle
// looks). An unused world has no records.
func ReadJournal(dir string) ([]EffectRecord, error) {
	records, err := readJournalFile(filepath.Join(dir, JournalName))
	if err != nil {
		return nil, err
	}
	ids, err := machineFiles(dir)
	if err != nil {
		return nil, err
	}
	for _, path := range ids {
		st, _, err := readState(path)
		if err != nil {
			return nil, err
		}
		records = append(records, missingFrom(records, st.Outbox)...)
	}
	return records, nil
}

func readJournalFile(path string) ([]EffectRecord, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	var records []EffectRecord
	for n, line := range bytes.Split(b, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var r EffectRecord
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("read journal line %d: %w", n+1, err)
		}
		records = append(records, r)
	}
	return records, nil
}

func missingFrom(journal, owed []EffectRecord) []EffectRecord {
	type key struct {
		machine string
		seq     uint64
	}
	have := make(map[key]bool)
	if len(owed) > 0 {
		for _, r := range journal {
			have[key{r.MachineID, r.Seq}] = true
		}
	}
	var missing []EffectRecord
	for _, r := range owed {
		if !have[key{r.MachineID, r.Seq}] {
			missing = append(missing, r)
		}
	}
	return missing
}

func appendJournal(path string, records []EffectRecord, sync bool) (err error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode journal record: %w", err)
		}
		if _, err := f.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("append to journal: %w", err)
		}
	}
	if !sync {
		return nil
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	return nil
}
