package invariants

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/cli"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/internal/clock"
)

var (
	inlineCode     = regexp.MustCompile("`(ingot(?:-agent|-controller|-image)? [^`]+)`")
	commandHeading = regexp.MustCompile(`(?m)^## (ingot.*)$`)
	flagName       = regexp.MustCompile(`(?:^|[\s,])(--?[a-z][a-z0-9-]*)`)
	lowerWord      = regexp.MustCompile(`^[a-z][a-z-]+$`)
)

// TestDocumentsNameCommandsThatExist holds that each command of ours that a document shows exists, with its flags.
func TestDocumentsNameCommandsThatExist(t *testing.T) {
	pages := map[string]string{} // command path: the text of its section in the reference
	for _, program := range []string{"ingot", "ingot-agent", "ingot-controller", "ingot-image"} {
		text := readFile(t, "docs/reference/"+program+".md")
		marks := commandHeading.FindAllStringSubmatchIndex(text, -1)
		for i, m := range marks {
			end := len(text)
			if i+1 < len(marks) {
				end = marks[i+1][0]
			}
			pages[text[m[2]:m[3]]] = text[m[1]:end]
		}
	}
	checked := 0
	for _, path := range trackedFiles(t) {
		ours := strings.HasPrefix(path, "docs/howto/") || strings.HasPrefix(path, "docs/tutorial/") ||
			strings.HasPrefix(path, "docs/explanation/") || strings.HasPrefix(path, "docs/reference/")
		if !ours && path != "README.md" || !strings.HasSuffix(path, ".md") {
			continue
		}
		for _, words := range shownCommands(readFile(t, path)) {
			checked++
			if why := wrongCommand(t, pages, words); why != "" {
				t.Errorf("%s: %s: %s", path, strings.Join(words, " "), why)
			}
		}
	}
	if checked < 300 {
		t.Errorf("found %d commands: the search no longer fits the documents", checked)
	}
}

// shownCommands finds commands in blocks of shell and in code within a line, as words.
func shownCommands(text string) (out [][]string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	add := func(line string) {
		for _, words := range shellCommands(line) {
			if len(words) > 1 && strings.HasPrefix(words[0], "ingot") {
				out = append(out, words)
			}
		}
	}
	shell, fenced := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if lang, ok := strings.CutPrefix(line, "```"); ok {
			fenced = !fenced
			shell = fenced && slices.Contains([]string{"sh", "bash", "console"}, lang)
			continue
		}
		switch {
		case shell:
			add(strings.TrimPrefix(line, "$ "))
		case !fenced:
			for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
				add(m[1])
			}
		}
	}
	return out
}

// shellCommands splits a line at pipes and separators, and each command into words, as far as documents need.
func shellCommands(line string) (out [][]string) {
	var words []string
	word, quote := "", rune(0)
	endWord := func() {
		if word != "" {
			words = append(words, word)
		}
		word = ""
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 && words[0] == "until" {
			words = words[1:]
		}
		if len(words) > 0 {
			out = append(out, words)
		}
		words = nil
	}
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word += string(c)
		case c == '\'' || c == '"':
			quote = c
		case c == '#' && word == "":
			endCommand()
			return out
		case strings.ContainsRune("|&;<>", c):
			endCommand()
		case c == ' ' || c == '\t':
			endWord()
		default:
			word += string(c)
		}
	}
	endCommand()
	return out
}

// wrongCommand returns the error of a command, by the pages of the reference and for ingot by its own parser.
func wrongCommand(t *testing.T, pages map[string]string, words []string) string {
	t.Helper()
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "…" })
	path := words[0]
	if path == "ingot-lab" {
		return "" // is not shipped, and has no page
	}
	if pages[path] == "" {
		return "no such program"
	}
	n := 1
	for ; n < len(words) && pages[path+" "+words[n]] != ""; n++ {
		path += " " + words[n]
	}
	group := false
	for other := range pages {
		group = group || strings.HasPrefix(other, path+" ")
	}
	if group && n < len(words) && lowerWord.MatchString(words[n]) {
		return "no such command"
	}
	if words[0] == "ingot" {
		var out, bad strings.Builder
		code := cli.Run(
			t.Context(),
			command.Config{Args: append(slices.Clone(words[1:]), "--help"), In: strings.NewReader(""),
				Out: &out, Err: &bad, Getenv: func(string) string { return "" }, Clock: clock.Real()},
		)
		if code != 0 && path != "ingot exit-codes" {
			return bad.String()
		}
		return ""
	}
	text := pages[path] + pages[words[0]]
	if n == 1 { // a flag of any command of the program
		text = strings.Join(slices.Collect(maps.Values(pages)), "\n")
	}
	known := flagName.FindAllStringSubmatch(text, -1)
	for _, w := range words[n:] {
		flag, _, _ := strings.Cut(w, "=")
		if strings.HasPrefix(flag, "-") && len(flag) > 1 && !slices.Contains([]string{"--help", "--version"}, flag) &&
			!slices.ContainsFunc(known, func(m []string) bool { return m[1] == flag }) {
			return "no flag " + flag
		}
	}
	return ""
}
