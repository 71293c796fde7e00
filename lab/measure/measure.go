// Package measure reads what programs use: their memory, processor time, open files and metrics, and sums up latencies.
package measure

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Sizes in bytes.
const (
	KiB = 1 << 10
	MiB = 1 << 20
)

// Latency sums up durations, in milliseconds.
type Latency struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
	N   int     `json:"n"`
}

// Percentiles sorts its argument. The p99 of few values is their greatest.
func Percentiles(values []time.Duration) Latency {
	if len(values) == 0 {
		return Latency{}
	}
	slices.Sort(values)
	at := func(share float64) float64 {
		i := min(int(share*float64(len(values))), len(values)-1)
		return float64(values[i].Microseconds()) / 1000
	}
	return Latency{P50: at(0.50), P99: at(0.99), Max: at(1), N: len(values)}
}

// Times calls fn n times after some calls that are not counted, and sums up how long each took.
func Times(n, uncounted int, fn func(i int) error) (Latency, error) {
	var all []time.Duration
	for i := range n + uncounted {
		began := time.Now()
		if err := fn(i); err != nil {
			return Latency{}, err
		}
		if i >= uncounted {
			all = append(all, time.Since(began))
		}
	}
	return Percentiles(all), nil
}

// RSS is the resident memory of a process now, in bytes.
func RSS(pid int) (int64, error) {
	s, err := status(pid)
	return int64(s.VmRSS), err
}

// Peak is the most resident memory that a process has ever had, in bytes.
func Peak(pid int) (int64, error) {
	s, err := status(pid)
	return int64(s.VmHWM), err
}

// ResetPeak makes Peak begin anew with what the process has now (proc(5), clear_refs).
func ResetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o200); err != nil {
		return fmt.Errorf("reset peak memory of process: %w", err)
	}
	return nil
}

func status(pid int) (procfs.ProcStatus, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStatus{}, fmt.Errorf("find process: %w", err)
	}
	s, err := p.NewStatus()
	if err != nil {
		return s, fmt.Errorf("read memory of process: %w", err)
	}
	return s, nil
}

// OpenFiles counts a process's file descriptors.
func OpenFiles(pid int) (int, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("find process: %w", err)
	}
	return p.FileDescriptorsLen()
}

// Metrics are a controller's metrics, without those that have labels.
type Metrics map[string]float64

// ReadMetrics asks a controller's HTTP listener.
func ReadMetrics(ctx context.Context, address string) (Metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return parseMetrics(string(body)), nil
}

// parseMetrics reads the Prometheus text format.
func parseMetrics(text string) Metrics {
	out := Metrics{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			out[name] = v
		}
	}
	return out
}

// InUse is what Go has in use for heap and stacks, in bytes.
func (m Metrics) InUse() float64 {
	return m["go_memstats_heap_inuse_bytes"] + m["go_memstats_stack_inuse_bytes"]
}
