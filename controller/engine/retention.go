package engine

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Retention says how long logs of operations are kept, and where they go then.
type Retention struct {
	// Logs is counted from the creation of the operation; 0 keeps logs for ever.
	Logs time.Duration
	// ExportDir gets one file for each log before it is removed.
	ExportDir string
}

const (
	// tidyEvery is how often what has grown old is looked for, and logsAtOnce how many logs one look takes at a time.
	tidyEvery  = time.Hour
	logsAtOnce = 500
)

// tidy removes what has grown old.
func (e *Engine) tidy(ctx context.Context) error {
	now := e.clock.Now()
	if err := e.store.Tidy(ctx, now); err != nil || e.cfg.Retention.Logs == 0 {
		return err
	}
	for after := ""; ; {
		ids, next, err := e.store.OldLogs(ctx, after, now.Add(-e.cfg.Retention.Logs), logsAtOnce)
		if err != nil {
			return err
		}
		for _, id := range ids {
			err := e.store.RemoveLog(ctx, id, now, func(pieces []*baremetalv1.LogChunk) (string, error) {
				return exportLog(e.cfg.Retention.ExportDir, id, pieces)
			})
			if err != nil {
				return err
			}
		}
		if after = next; after == "" {
			return nil
		}
	}
}

// exportedPiece is a line of an exported log.
type exportedPiece struct {
	Seq    int64     `json:"seq"`
	TS     time.Time `json:"ts"`
	Stream string    `json:"stream"`
	Step   string    `json:"step"`
	// Data is text. Bytes that are none are in Bytes, as base64.
	Data  string `json:"data,omitempty"`
	Bytes []byte `json:"bytes,omitempty"`
}

// exportLog writes the pieces of a log to a file of their own, as compressed lines of JSON, and returns its path once
// it is on the disk. The name holds the first piece's number, so that what comes later has another file.
func exportLog(dir, operationID string, pieces []*baremetalv1.LogChunk) (string, error) {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	lines := json.NewEncoder(z)
	for _, p := range pieces {
		line := exportedPiece{Seq: p.GetSeq(), TS: p.GetTs().AsTime(), Stream: p.GetStream(), Step: p.GetStep()}
		if utf8.Valid(p.GetData()) {
			line.Data = string(p.GetData())
		} else {
			line.Bytes = p.GetData()
		}
		if err := lines.Encode(line); err != nil {
			return "", fmt.Errorf("export log: %w", err)
		}
	}
	if err := z.Close(); err != nil {
		return "", fmt.Errorf("export log: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%d.jsonl.gz", filepath.Base(operationID), pieces[0].GetSeq()))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("export log: %w", err)
	}
	return path, pki.WriteFile(path, buf.Bytes(), 0o640)
}
