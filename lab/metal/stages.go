package metal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Stage is one part of a reimage, as seen from outside.
type Stage struct {
	Name string
	// Ended is when it was over, and Took how long it was since the stage before.
	Ended time.Time
	Took  time.Duration
}

// Stages are the parts of a reimage that has succeeded, from the operation's events and log and from what the site
// agent noticed. A part that was not seen is left out; its time is in the next one.
func (l *Lab) Stages(ctx context.Context, op *pb.Operation) ([]Stage, error) {
	lines, err := l.client.LogOf(ctx, op)
	if err != nil {
		return nil, err
	}
	site, err := os.ReadFile(l.site.Log)
	if err != nil {
		return nil, err
	}
	began := op.GetCreatedAt().AsTime()
	logged := func(text string) time.Time {
		for _, c := range lines {
			if strings.Contains(string(c.GetData()), text) {
				return c.GetTs().AsTime()
			}
		}
		return time.Time{}
	}
	noticed := func(patterns ...string) time.Time {
		return firstAfter(string(site), began, op.GetMachineId(), patterns...)
	}
	return chain(began, []Stage{
		{Name: "decided, power on", Ended: latest(logged("the BMC says that it is on"), logged("entering the installer"))},
		{Name: "firmware, address by DHCP", Ended: noticed(`msg="lease an address"`)},
		{Name: "boot loader, kernel asked for", Ended: noticed(`msg="boot file asked for".* file=(kernel|uki)`)},
		{Name: "installer certified", Ended: noticed(`msg="installer certified"`)},
		{Name: "command granted, disk checked", Ended: logged("stage: write")},
		{Name: "image written", Ended: logged("stage: verify")},
		{Name: "read back", Ended: logged("stage: identity")},
		{Name: "identity, first MiB", Ended: logged("wrote /dev/")},
		{Name: "reboot, session of the new system", Ended: op.GetFinishedAt().AsTime()},
	}), nil
}

func latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// chain leaves out what wasn't seen, or was seen out of order because clocks and writers differ by milliseconds.
func chain(began time.Time, stages []Stage) []Stage {
	var out []Stage
	for _, s := range stages {
		if s.Ended.Before(began) {
			continue
		}
		s.Took = s.Ended.Sub(began)
		began = s.Ended
		out = append(out, s)
	}
	return out
}

var logTime = regexp.MustCompile(`^time=(\S+)`)

// firstAfter returns the time of the first line that matches one of the patterns. Lines that name another machine don't
// count.
func firstAfter(log string, began time.Time, machine string, patterns ...string) time.Time {
	wanted := regexp.MustCompile(strings.Join(patterns, "|"))
	for line := range strings.Lines(log) {
		m := logTime.FindStringSubmatch(line)
		if m == nil || !wanted.MatchString(line) || strings.Contains(line, "machine_id=") &&
			!strings.Contains(line, "machine_id="+machine) {
			continue
		}
		if at, err := time.Parse(time.RFC3339Nano, m[1]); err == nil && !at.Before(began) {
			return at
		}
	}
	return time.Time{}
}

// LogOf is everything that an operation has logged so far.
func (c *Client) LogOf(ctx context.Context, op *pb.Operation) ([]*pb.LogChunk, error) {
	stream, err := c.Operations.StreamOperationLogs(ctx, &pb.StreamOperationLogsRequest{
		OperationId: op.GetOperationId(), NoFollow: true,
	})
	if err != nil {
		return nil, fmt.Errorf("read the operation's log: %w", err)
	}
	var chunks []*pb.LogChunk
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return chunks, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the operation's log: %w", err)
		}
		chunks = append(chunks, chunk)
	}
}

// PrintStages writes them as a table.
func PrintStages(out io.Writer, began time.Time, stages []Stage) {
	for _, s := range stages {
		fmt.Fprintf(out, "  %-36s %6.1f s   at %5.1f s\n", s.Name, s.Took.Seconds(), s.Ended.Sub(began).Seconds())
	}
}
