package rig

import (
	"os"
	"strings"
	"testing"
)

// PasswordTask is the task of the page that needs BMCs.
const PasswordTask = "Change the passwords of BMCs"

// Tasks are the lines to type of each task of docs/howto/tasks.md, by its heading.
func Tasks(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile("../../../docs/howto/tasks.md")
	if err != nil {
		t.Fatal(err)
	}
	out, heading, code := map[string][]string{}, "", false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			code = line == "```bash"
		case code:
			out[heading] = append(out[heading], line)
		case strings.HasPrefix(line, "## "):
			heading = strings.TrimPrefix(line, "## ")
		}
	}
	return out
}

// Words splits a line as a shell does that knows quotes and nothing else.
func Words(line string) (out []string) {
	quote, word := rune(0), ""
	for _, r := range line + " " {
		switch {
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		case r == quote:
			quote = 0
		case quote == 0 && r == ' ':
			if word != "" {
				out = append(out, word)
			}
			word = ""
		default:
			word += string(r)
		}
	}
	return out
}
