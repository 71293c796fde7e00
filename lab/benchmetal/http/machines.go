package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/measure"
)

// outcome of one run.
type outcome struct {
	fastest, slowest time.Duration
	// rate of all machines together, in MiB/s.
	rate float64
	// peak of the server's resident set, in MiB, and the time it computed.
	peak float64
	cpu  time.Duration
}

func (o outcome) ratio() float64 { return o.slowest.Seconds() / o.fastest.Seconds() }

// measureOnce starts a server and lets the machines fetch.
func measureOnce(ctx context.Context, o options, c testCase) (out outcome, err error) {
	dir, err := os.MkdirTemp("", "bench-http-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, err := store(dir, o.mib)
	if err != nil {
		return out, err
	}
	self, err := os.Executable()
	if err != nil {
		return out, err
	}
	cmd := exec.CommandContext(ctx, self, "-serve", file, "-dir", filepath.Join(dir, "cache"))
	cmd.Stderr = os.Stderr
	stop, err := cmd.StdinPipe()
	if err != nil {
		return out, err
	}
	says, err := cmd.StdoutPipe()
	if err != nil {
		return out, err
	}
	if err := cmd.Start(); err != nil {
		return out, err
	}
	var base string
	if _, err = fmt.Fscan(bufio.NewReader(says), &base); err == nil {
		out, err = fetchAll(ctx, o, c, base+c.path(filepath.Base(file)))
	}
	if err == nil {
		var peak int64
		peak, err = measure.Peak(cmd.Process.Pid)
		out.peak = float64(peak) / measure.MiB
	}
	err = errors.Join(err, stop.Close(), cmd.Wait())
	out.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return out, err
}

// fetchAll lets all machines begin at one moment.
func fetchAll(ctx context.Context, o options, c testCase, url string) (outcome, error) {
	if c.warm {
		if _, _, err := fetch(ctx, http.DefaultClient, url, 0); err != nil {
			return outcome{}, err
		}
	}
	begin, release, err := os.Pipe()
	if err != nil {
		return outcome{}, err
	}
	took, bytes := make([]time.Duration, o.machines), make([]int64, o.machines)
	group, groupCtx := task.New(ctx)
	ready := make(chan struct{}, o.machines)
	for i := range o.machines {
		var rate int64
		if c.slow > 0 && i%c.slow == 0 {
			rate = 2 << 20
		}
		group.Go("machine", func(context.Context) error {
			var err error
			took[i], bytes[i], err = runMachine(groupCtx, url, rate, begin, func() { ready <- struct{}{} })
			return err
		})
	}
	for range o.machines {
		select {
		case <-ready:
		case <-groupCtx.Done():
		}
	}
	start := realTime.Now()
	err = release.Close() // its end is the signal to all
	if err = errors.Join(err, group.Wait(), begin.Close()); err != nil {
		return outcome{}, err
	}
	return summary(c, took, bytes, realTime.Now().Sub(start)), nil
}

// runMachine runs a machine as a process.
func runMachine(
	ctx context.Context, url string, rate int64, begin *os.File, ready func(),
) (took time.Duration, bytes int64, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	cmd := exec.CommandContext(ctx, self, "-machine", url, "-rate", strconv.FormatInt(rate, 10))
	cmd.Stdin, cmd.Stderr = begin, os.Stderr
	says, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	out := bufio.NewReader(says)
	_, err = out.ReadString('\n')
	ready()
	if err != nil {
		return 0, 0, errors.Join(err, cmd.Wait())
	}
	_, err = fmt.Fscan(out, &took, &bytes)
	return took, bytes, errors.Join(err, cmd.Wait())
}

// machine connects, says so with an empty line, waits for the end of its standard input, fetches, and says how long it
// took.
func machine(ctx context.Context, o options) error {
	runtime.GOMAXPROCS(1)
	at, err := url.Parse(o.machine)
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", at.Host)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	fmt.Println()
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	took, n, err := fetch(ctx, client, o.machine, o.rate)
	if err != nil {
		return err
	}
	fmt.Println(int64(took), n)
	return nil
}

func summary(c testCase, took []time.Duration, bytes []int64, all time.Duration) (out outcome) {
	var sum int64
	for i, d := range took {
		sum += bytes[i]
		if c.slow > 0 && i%c.slow == 0 {
			continue
		}
		out.slowest = max(out.slowest, d)
		if out.fastest == 0 || d < out.fastest {
			out.fastest = d
		}
	}
	out.rate = float64(sum) / (1 << 20) / all.Seconds()
	return out
}

// fetch takes the file, at most at rate bytes per second when that isn't 0.
func fetch(ctx context.Context, client *http.Client, url string, rate int64) (time.Duration, int64, error) {
	start := realTime.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	n, err := drain(ctx, resp.Body, rate)
	if err == nil && n != resp.ContentLength {
		err = fmt.Errorf("%d bytes of %d", n, resp.ContentLength)
	}
	return realTime.Now().Sub(start), n, err
}

func drain(ctx context.Context, from io.Reader, rate int64) (n int64, err error) {
	if rate == 0 {
		return io.Copy(io.Discard, from)
	}
	const tick = 20 * time.Millisecond
	for {
		m, err := io.CopyN(io.Discard, from, rate*int64(tick)/int64(time.Second))
		n += m
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		select {
		case <-ctx.Done():
			return n, ctx.Err()
		case <-realTime.After(tick):
		}
	}
}
