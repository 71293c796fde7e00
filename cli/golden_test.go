package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/encode"
	"github.com/ingot-metal/ingot/internal/clock"
)

var update = flag.Bool("update", false, "write the golden files anew")

// stillClock stands at one second after the tests' operations began.
type stillClock struct{ quickClock }

func (stillClock) Now() time.Time { return at(60).AsTime() }

// record keeps the requests to the server, for transcripts.
func (f *fakeServer) record(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler,
) (any, error) {
	method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
	line, err := said(req.(proto.Message))
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.asked = append(f.asked, method+" "+line)
	lost := f.lose[method]
	delete(f.lose, method)
	f.mu.Unlock()
	resp, err := f.intercept(ctx, req, info, h)
	if m, ok := resp.(proto.Message); ok && err == nil && f.hostile != "" {
		resp = f.spoiled(m)
	}
	if lost != nil && err == nil {
		return nil, lost // it has happened, and its answer is lost
	}
	return resp, err
}

// said returns a request as JSON, without its empty fields.
func said(m proto.Message) (string, error) {
	line, err := encode.Line(m)
	if err != nil {
		return "", err
	}
	var tree map[string]any
	if err := json.Unmarshal(line, &tree); err != nil {
		return "", err
	}
	out, err := json.Marshal(withoutEmpty(tree))
	return string(out), err
}

func withoutEmpty(tree map[string]any) map[string]any {
	for key, value := range tree {
		switch v := value.(type) {
		case map[string]any:
			withoutEmpty(v)
		case []any:
			if len(v) == 0 {
				delete(tree, key)
			}
		default:
			if v == "" || v == false || v == 0.0 || v == "0" || strings.HasSuffix(fmt.Sprint(v), "_UNSPECIFIED") {
				delete(tree, key)
			}
		}
	}
	return tree
}

var madeID = regexp.MustCompile(`\b(req|plan)-[0-9a-z]{20,}`)

// golden runs command lines, each against a server of its own, and compares the transcript with testdata/NAME.golden:
// the command line ($), the requests (>), standard output, standard error (!), and the exit code.
func golden(t *testing.T, name string, server func() *fakeServer, lines ...string) {
	t.Helper()
	var b strings.Builder
	for _, line := range lines {
		f := server()
		got := f.runWith(t, func(c *command.Config) { c.Clock = stillClock{quickClock{clock.Real()}} }, words(line)...)
		b.WriteString("$ ingot " + line + "\n")
		for _, q := range f.asked {
			b.WriteString("> " + q + "\n")
		}
		b.WriteString(got.out)
		for l := range strings.Lines(got.err) {
			b.WriteString("! " + l)
		}
		if got.code != command.ExitOK {
			b.WriteString("exit code " + string(rune('0'+got.code)) + "\n")
		}
		b.WriteByte('\n')
	}
	compare(t, filepath.Join("testdata", name+".golden"), madeID.ReplaceAllString(b.String(), "$1-…"))
}

// words splits a line as a shell does, as far as the tests need it.
func words(line string) []string {
	out := strings.Fields(line)
	for i, w := range out {
		if w == "''" {
			out[i] = ""
		}
	}
	return out
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	have, wanted := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(have), len(wanted)) {
		if i >= len(have) || i >= len(wanted) || have[i] != wanted[i] {
			t.Fatalf("%s, line %d: write it anew with -update where this is meant\ngot  %q\nwant %q", path, i+1, from(have, i),
				from(wanted, i))
		}
	}
}

// from is up to three lines, which may lie behind the end.
func from(lines []string, i int) []string {
	return lines[min(i, len(lines)):min(i+3, len(lines))]
}
