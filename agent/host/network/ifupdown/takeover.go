package ifupdown

import (
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Marks of what we change in files of others. Each is at the beginning of a line.
const (
	// takenMark is before a foreign line that is not in force while the interface is ours.
	takenMark = "#ingot# "
	// addedMark is a line of its own, before a line that we have added.
	addedMark = "#ingot+"
)

// takeOver comments out the named interfaces in a file of interfaces(5). It restores the lines of others that an
// earlier call has commented out.
func takeOver(text string, names map[string]bool) string {
	var out strings.Builder
	taken := false // whether the stanza that the line is in is one of the named interfaces
	for _, entry := range entries(giveBack(text)) {
		fields := strings.Fields(strings.ReplaceAll(entry, "\\\n", " "))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			out.WriteString(entry)
			continue
		}
		var kept []string
		switch kind := kindOf(fields[0]); kind {
		case listOfNames:
			for _, f := range fields[1:] {
				if !names[physical(f)] {
					kept = append(kept, f)
				}
			}
			taken = false
			if len(kept) == len(fields)-1 {
				out.WriteString(entry)
				continue
			}
			out.WriteString(commented(entry))
			if len(kept) > 0 {
				out.WriteString(added(fields[0] + " " + strings.Join(kept, " ")))
			}
			continue
		case stanza:
			taken = len(fields) > 1 && names[physical(fields[1])]
		case alone:
			taken = false
		}
		if taken {
			entry = commented(entry)
		}
		out.WriteString(entry)
	}
	return out.String()
}

// giveBack undoes every change of ours.
func giveBack(text string) string {
	var out strings.Builder
	drop := false
	for line := range strings.Lines(text) {
		switch {
		case drop:
			drop = false
		case strings.TrimRight(line, "\n") == addedMark:
			drop = true
		default:
			out.WriteString(strings.TrimPrefix(line, takenMark))
		}
	}
	return out.String()
}

// added is a line of ours in a foreign file.
func added(line string) string { return addedMark + "\n" + line + "\n" }

// commented takes a line with its continuations out of force.
func commented(entry string) string {
	var out strings.Builder
	for line := range strings.Lines(entry) {
		out.WriteString(takenMark + line)
	}
	return out.String()
}

// entries splits a file into lines, each with those that continue it.
func entries(text string) []string {
	var out []string
	open := false
	for line := range strings.Lines(text) {
		if open {
			out[len(out)-1] += line
		} else {
			out = append(out, line)
		}
		open = strings.HasSuffix(line, "\\\n")
	}
	return out
}

type kind int

const (
	option kind = iota // of the stanza that it is in
	listOfNames
	stanza
	alone
)

// kindOf returns the kind of a line by its first word: interfaces(5).
func kindOf(word string) kind {
	switch {
	case word == "auto" || word == "no-auto-down" || word == "no-scripts" || strings.HasPrefix(word, "allow-"):
		return listOfNames
	case word == "iface" || word == "mapping":
		return stanza
	case word == "source" || word == "source-directory" || word == "template" || word == "rename":
		return alone
	}
	return option
}

// physical is the interface that a word means: eth0 of eth0:1 and of eth0=office.
func physical(word string) string {
	name, _, _ := strings.Cut(word, "=")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// names that run-parts(8) takes, and so does source-directory.
var sourcedName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// sources returns the absolute patterns of the files that a file reads, and which of them take only certain names.
func sources(file, text string) (patterns, directories []string) {
	for _, entry := range entries(text) {
		fields := strings.Fields(strings.ReplaceAll(entry, "\\\n", " "))
		if len(fields) < 2 {
			continue
		}
		for _, f := range fields[1:] {
			if !path.IsAbs(f) {
				f = path.Join(path.Dir(file), f)
			}
			switch fields[0] {
			case "source":
				patterns = append(patterns, f)
			case "source-directory":
				directories = append(directories, f)
			}
		}
	}
	return patterns, directories
}

// reads reports whether a file with this text reads another.
func reads(file, text, other string) bool {
	patterns, directories := sources(file, text)
	for _, p := range patterns {
		if ok, _ := filepath.Match(p, other); ok { // a bad pattern matches nothing
			return true
		}
	}
	for _, d := range directories {
		if ok, _ := filepath.Match(d, path.Dir(other)); ok {
			return true
		}
	}
	return false
}
