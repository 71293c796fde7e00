package invariants

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// nameRules are the lines of words.txt.
type nameRules struct {
	words    map[string]string            // word in lower case: a better one
	packages map[string]string            // package name: a better one
	files    map[string]string            // path below the top of the tree: a better base name
	names    map[string]map[string]string // package's folder, identifier or Type.Member: a better one
}

func readNameRules(t *testing.T) nameRules {
	t.Helper()
	r := nameRules{map[string]string{}, map[string]string{}, map[string]string{}, map[string]map[string]string{}}
	for _, line := range readLines(t, "words.txt") {
		left, better, ok := strings.Cut(line, ":")
		f := strings.Fields(left)
		better = strings.TrimSpace(better)
		switch {
		case ok && len(f) == 2 && f[0] == "word":
			r.words[f[1]] = better
		case ok && len(f) == 2 && f[0] == "package":
			r.packages[f[1]] = better
		case ok && len(f) == 2 && f[0] == "file":
			r.files[f[1]] = better
		case ok && len(f) == 3 && f[0] == "name":
			if r.names[f[1]] == nil {
				r.names[f[1]] = map[string]string{}
			}
			r.names[f[1]][f[2]] = better
		default:
			t.Fatalf("words.txt: cannot read %q", line)
		}
	}
	return r
}

// TestNamesSayWhatTheyMean holds that no package, file or declaration has a name of words.txt.
func TestNamesSayWhatTheyMean(t *testing.T) {
	rules := readNameRules(t)
	for _, f := range goFiles(t) {
		if f.generated {
			continue
		}
		if better, bad := rules.files[f.path]; bad {
			t.Errorf("%s: name this file %s", f.path, better)
		}
		name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		if better, bad := rules.packages[name]; bad {
			t.Errorf("%s: name package %s %s", f.path, name, better)
		}
		spoken := append(fileWords(f.path), strings.ToLower(name))
		for _, id := range declared(f.syntax) {
			plain := strings.TrimPrefix(id, "*")
			if better, bad := rules.names[f.dir][plain]; bad {
				t.Errorf("%s: name %s %s", f.path, plain, better)
			}
			if member := plain[strings.LastIndex(plain, ".")+1:]; ast.IsExported(member) && !f.test {
				spoken = append(spoken, camelWords(member)...)
			}
		}
		for _, word := range spoken {
			if better, bad := rules.words[word]; bad {
				t.Errorf("%s: %q is none of the field's words, say %s", f.path, word, better)
			}
		}
	}
}

func fileWords(p string) []string {
	return strings.Split(strings.ToLower(strings.TrimSuffix(path.Base(p), ".go")), "_")
}

// camelWords returns the words of an identifier in lower case. A run of capitals is one word, but for the last of them
// before a small letter.
func camelWords(id string) []string {
	var out []string
	start := 0
	runes := []rune(id)
	for i := 1; i <= len(runes); i++ {
		if i < len(runes) {
			begins := unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1])
			last := unicode.IsUpper(runes[i]) && i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if !begins && !last {
				continue
			}
		}
		out = append(out, strings.ToLower(string(runes[start:i])))
		start = i
	}
	return out
}

func TestCamelWords(t *testing.T) {
	for id, want := range map[string][]string{
		"NewLoneStep": {"new", "lone", "step"}, "carryOut": {"carry", "out"}, "Desk": {"desk"},
		"HTTPServer": {"http", "server"}, "ParseURL": {"parse", "url"},
	} {
		if got := camelWords(id); !slices.Equal(got, want) {
			t.Errorf("camelWords(%q) = %q, want %q", id, got, want)
		}
	}
}

// declared returns the names that a file declares at its top level, methods as Type.Method.
func declared(f *ast.File) []string {
	var out []string
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				out = append(out, d.Name.Name)
			} else {
				out = append(out, receiverName(d.Recv.List[0].Type)+"."+d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					out = append(out, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						out = append(out, n.Name)
					}
				}
			}
		}
	}
	return out
}

func receiverName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// commentRules bound how often words stand in 10,000 words of comments. Those with a most stand for a technical verb or
// a noun. Doc comments of functions have the verbs with a least. The goals are 3, 2, 1, 2 and 30. A most may only fall.
var commentRules = []struct {
	words       *regexp.Regexp
	most, least float64
}{
	{words: regexp.MustCompile(`\bsays\b`), most: 2},
	{words: regexp.MustCompile(`\bgives\b`), most: 0.7},
	{words: regexp.MustCompile(`\b(?:nobody|somebody|whoever)\b`), most: 1.2},
	{words: regexp.MustCompile(`\bwhat (?:is|has)\b`), most: 1.7},
	{words: regexp.MustCompile(`\b(?:returns|reports whether)\b`), most: 10_000, least: 30},
}

// mostLong bounds the sentences of comments with more than mostWords words, in percent of all. It may only fall. The
// goal is 1.
const (
	mostLong  = 0.2
	mostWords = 25
)

// TestCommentsAreInPlainEnglish counts the words and the sentences of all comments but those of generated files.
func TestCommentsAreInPlainEnglish(t *testing.T) {
	words, counts := 0, make([]int, len(commentRules))
	all, long := 0, []string{}
	for _, f := range goFiles(t) {
		if f.generated {
			continue
		}
		for _, group := range f.syntax.Comments {
			text := group.Text()
			for _, s := range sentences(text) {
				if all++; len(strings.Fields(s)) > mostWords {
					long = append(long, position(group)+": "+strings.Join(strings.Fields(s), " "))
				}
			}
			text = strings.ToLower(text)
			words += len(strings.Fields(text))
			for i, r := range commentRules {
				counts[i] += len(r.words.FindAllString(text, -1))
			}
		}
	}
	if share := float64(len(long)) * 100 / float64(all); share > mostLong {
		t.Errorf("%.2f %% of the sentences in comments have more than %d words, allowed are %g %%:\n%s",
			share, mostWords, mostLong, strings.Join(long, "\n"))
	}
	for i, r := range commentRules {
		share := float64(counts[i]) * 10_000 / float64(words)
		if share > r.most || share < r.least {
			t.Errorf("%s: %.1f in 10,000 words of comments, allowed are %g to %g", r.words, share, r.least, r.most)
		}
	}
}

// sentenceEnd is the end of a sentence within a paragraph. Quotes and brackets may close behind the mark.
var sentenceEnd = regexp.MustCompile(`[.!?:]["')]*\s+`)

// sentences returns the sentences of a comment's paragraphs. Code blocks, list items and headings are left out.
func sentences(text string) []string {
	var out []string
	for _, paragraph := range regexp.MustCompile(`\n\s*\n`).Split(text, -1) {
		var prose []string
		for line := range strings.Lines(paragraph) {
			if strings.IndexAny(line, " \t-#") != 0 {
				prose = append(prose, line)
			}
		}
		for _, s := range strings.Split(sentenceEnd.ReplaceAllString(strings.Join(prose, ""), "\x00"), "\x00") {
			if strings.TrimSpace(s) != "" {
				out = append(out, s)
			}
		}
	}
	return out
}

func TestSentences(t *testing.T) {
	got := sentences("A one: two\nlines. \"Quoted.\" Last\n\n\tcode. block\n  - item. one\n# Head. line\nAnd e.g.this.\n")
	if want := []string{"A one", "two\nlines", "\"Quoted", "Last", "And e.g.this"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
