package script

import (
	"bytes"
	"context"
	"strings"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/agent/provider/ssh"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

// chunk is how much of a stream goes into one piece of the log.
const chunk = 16 << 10

// stream takes one of a script's streams into the operation's log: whole lines, as plain text and without what looks
// like a secret.
type stream struct {
	name  string
	job   executor.Job
	scrub *bmc.Redactor
	text  strings.Builder
	// rest is what was read and has no line end yet; told is up to where the log has everything.
	rest []byte
	told int64
}

func newStream(job executor.Job, name string, told int64) *stream {
	s := &stream{name: name, job: job, told: told}
	hide := hider(job.Spec.GetScript())
	s.scrub = bmc.NewRedactor(func(line string) {
		s.text.WriteString(hide.Replace(line) + "\n")
		if s.text.Len() >= chunk {
			s.send()
		}
	})
	return s
}

// leastHidden is the length in bytes from which a secret argument is taken out of lines: a shorter one would take out
// parts of words.
const leastHidden = 4

// hider replaces the secret arguments of a script in the lines that it prints, each line of an argument by itself.
func hider(a *fleetv1.ScriptAction) *strings.Replacer {
	var pairs []string
	for _, at := range a.GetSecretArgs() {
		if at < 0 || int(at) >= len(a.GetArgs()) {
			continue
		}
		for line := range strings.Lines(a.GetArgs()[at]) {
			if line = strings.TrimSpace(line); len(line) >= leastHidden {
				pairs = append(pairs, line, "(secret)")
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

// read takes what the machine has kept up to size.
func (s *stream) read(ctx context.Context, c *ssh.Client, id string, size int64) error {
	for from := s.told + int64(len(s.rest)); from < size; from = s.told + int64(len(s.rest)) {
		b, err := c.Read(ctx, id, s.name, from)
		if err != nil {
			return err
		}
		if len(b) == 0 {
			break
		}
		s.take(b)
	}
	s.send()
	return nil
}

// take hands whole lines on. A line that is longer than a chunk is cut.
func (s *stream) take(b []byte) {
	s.rest = append(s.rest, b...)
	end := bytes.LastIndexByte(s.rest, '\n') + 1
	if end == 0 && len(s.rest) >= chunk {
		end = len(s.rest)
	}
	s.feed(s.rest[:end])
	s.rest = append([]byte(nil), s.rest[end:]...)
}

func (s *stream) feed(b []byte) {
	// A Scrubber takes everything and never fails.
	_, _ = s.scrub.Write(b)
	s.told += int64(len(b))
}

func (s *stream) send() {
	if s.text.Len() > 0 {
		s.job.Output(s.name, []byte(s.text.String()))
		s.text.Reset()
	}
}

// flush logs the rest without a line end, and the number of bytes that were not kept. Nothing is read after it.
func (s *stream) flush(more int64) {
	s.feed(s.rest)
	s.scrub.Flush()
	s.send()
	if more > 0 {
		s.job.Logf("%d more bytes of %s were not kept", more, s.name)
	}
}
