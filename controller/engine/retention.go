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

	"github.com/riverqueue/river"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/engine/uniquejob"
	accessstore "github.com/ingot-metal/ingot/controller/store/access"
	approvalstore "github.com/ingot-metal/ingot/controller/store/approval"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/operationlog"
	paststore "github.com/ingot-metal/ingot/controller/store/past"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Retention is how long logs of operations and states of machines are kept, and where the logs go then.
type Retention struct {
	// Logs is counted from the creation of the operation; 0 keeps logs for ever.
	Logs time.Duration
	// ExportDir gets one file for each log before it is removed.
	ExportDir string
	// States is counted from the end of the state; 0 keeps states for ever.
	States time.Duration
}

const (
	// retentionEvery is how often what has grown old is removed.
	retentionEvery = time.Hour
	// logsAtOnce bounds the logs that are read at a time.
	logsAtOnce = 500
)

// retentionArgs ask for the removal of what has grown old.
type retentionArgs struct{}

// Kind implements river.JobArgs.
func (retentionArgs) Kind() string { return "retention" }

// InsertOpts implements river.JobArgsWithInsertOpts.
func (retentionArgs) InsertOpts() river.InsertOpts { return uniquejob.Options() }

type retentionWorker struct {
	river.WorkerDefaults[retentionArgs]
	retention *retention
}

// Timeout implements river.Worker: exports of logs take their time.
func (w *retentionWorker) Timeout(*river.Job[retentionArgs]) time.Duration { return retentionEvery }

// Work implements river.Worker.
func (w *retentionWorker) Work(ctx context.Context, _ *river.Job[retentionArgs]) error {
	return w.retention.tidy(ctx)
}

// periodicJobs are inserted by the controller that leads River's queue.
func (s *scheduler) periodicJobs() []*river.PeriodicJob {
	jobs := []*river.PeriodicJob{
		river.NewPeriodicJob(river.PeriodicInterval(retentionEvery),
			func() (river.JobArgs, *river.InsertOpts) { return retentionArgs{}, nil }, nil),
	}
	if s.webhooks != nil {
		jobs = append(jobs, s.webhooks.PeriodicJob())
	}
	return jobs
}

// retention removes what has grown old.
type retention struct {
	common
	access      *accessstore.Store
	approvals   *approvalstore.Store
	credentials *credentialstore.Store
	logs        *operationlog.Store
	changes     *machinestore.Feed
	past        *paststore.Store
}

// tidy removes what has grown old.
func (r *retention) tidy(ctx context.Context) error {
	now := r.clock.Now()
	if err := r.access.TidySessions(ctx, now); err != nil {
		return err
	}
	if err := r.credentials.Tidy(ctx, now); err != nil {
		return err
	}
	if err := r.changes.ForgetDepartures(ctx, now); err != nil {
		return err
	}
	if err := r.approvals.ForgetUnapprovedWork(ctx, now); err != nil {
		return err
	}
	if r.cfg.Retention.States != 0 {
		if err := r.past.ForgetStates(ctx, now.Add(-r.cfg.Retention.States)); err != nil {
			return err
		}
	}
	if r.cfg.Retention.Logs == 0 {
		return nil
	}
	return r.tidyLogs(ctx, now)
}

// tidyLogs exports and removes old logs.
func (r *retention) tidyLogs(ctx context.Context, now time.Time) error {
	for after := ""; ; {
		ids, next, err := r.logs.OldLogs(ctx, after, now.Add(-r.cfg.Retention.Logs), logsAtOnce)
		if err != nil {
			return err
		}
		for _, id := range ids {
			err := r.logs.RemoveLog(ctx, id, now, func(pieces []*baremetalv1.LogChunk) (string, error) {
				return exportLog(r.cfg.Retention.ExportDir, id, pieces)
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
