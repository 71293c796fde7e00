package console_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// consoleSources returns the hand-written sources of the console by their path below controller/console/web/src.
func consoleSources(t *testing.T) map[string]string {
	t.Helper()
	const dir = "web/src"
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "schema.d.ts" {
			return err
		}
		if ext := filepath.Ext(path); ext != ".ts" && ext != ".svelte" {
			return nil
		}
		text, err := os.ReadFile(path)
		name, relErr := filepath.Rel(dir, path)
		if err == nil {
			err = relErr
		}
		out[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil || len(out) < 40 {
		t.Fatalf("%d sources of the console, %v", len(out), err)
	}
	return out
}

// swallowed are the forms in which a script drops the error of a call.
var swallowed = []*regexp.Regexp{
	regexp.MustCompile(`\.catch\(\s*\(\s*\w*\s*\)\s*=>\s*(undefined|null|void 0|\[\]|\{\s*\}|\(\{\}\)|''|false)\s*\)`),
	regexp.MustCompile(`\.catch\(\s*\(\s*\)\s*=>`),
	regexp.MustCompile(`,\s*\(\s*\)\s*=>\s*(undefined|null|void 0|\[\]|\{\s*\}|\(\{\}\)|''|false)\s*,?\s*\)`),
	regexp.MustCompile(`\bcatch\s*\{`),
}

// caught begins a block that names its error.
var caught = regexp.MustCompile(`\bcatch \((\w+)\) \{`)

// notCalls are the blocks without a name that catch no error of a call of the API.
var notCalls = map[string]string{
	"api.svelte.ts":                     "a refusal whose body is no JSON is shown by its status",
	"machines.ts":                       "a label that is being typed: the call itself shows the error",
	"pages/Audit.svelte":                "data that is no JSON is shown as it stands",
	"parts/Copy.svelte":                 "the clipboard: the button's text reports it",
	"parts/machine/inventory.svelte.ts": "a document that is no JSON is no document",
}

// TestTheConsoleSwallowsNoRefusal: each error of a call reaches the page's data layer or a section that shows it.
func TestTheConsoleSwallowsNoRefusal(t *testing.T) {
	for name, text := range consoleSources(t) {
		for _, problem := range swallowsIn(name, text) {
			t.Errorf("controller/console/web/src/%s: %s: show the error by said, or let it reach poll", name, problem)
		}
	}
}

func swallowsIn(name, text string) (problems []string) {
	for _, form := range swallowed {
		for _, found := range form.FindAllString(text, -1) {
			if strings.HasPrefix(found, "catch") && notCalls[name] != "" {
				continue
			}
			problems = append(problems, found)
		}
	}
	for _, at := range caught.FindAllStringSubmatchIndex(text, -1) {
		block := blockAt(text[at[1]:])
		if !regexp.MustCompile(`\b`+text[at[2]:at[3]]+`\b`).MatchString(block) && !strings.Contains(block, "throw") {
			problems = append(problems, text[at[0]:at[1]]+"…}, which does not look at the error")
		}
	}
	return problems
}

// blockAt returns the text up to the bracket that closes a block.
func blockAt(text string) string {
	open := 1
	for i, c := range text {
		switch c {
		case '{':
			open++
		case '}':
			open--
		}
		if open == 0 {
			return text[:i]
		}
	}
	return text
}

// TestSwallowedErrorsAreFound: the forms that once made an error a list without rows.
func TestSwallowedErrorsAreFound(t *testing.T) {
	for _, text := range []string{
		"get('/agents').catch(() => [])", "look().catch(() => undefined)", "get(x).then((a) => (rows = a.rows), () => undefined)",
		"try { a() } catch { rows = [] }", "try { a() } catch (e) { rows = [] }", "begin().catch(() => { later() })",
	} {
		if len(swallowsIn("pages/Any.svelte", text)) == 0 {
			t.Errorf("%s is not found", text)
		}
	}
	for _, text := range []string{
		"try { a() } catch (e) { error = said(e) }", "a().then(b, (e) => (error = said(e)))", "try { a() } catch (e) { throw e }",
	} {
		if got := swallowsIn("pages/Any.svelte", text); len(got) > 0 {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// ownTimes are the ways in which a script writes or reads a time past the page's zone.
var ownTimes = regexp.MustCompile(
	`toLocale\w+|Intl\.DateTimeFormat|getTimezoneOffset|toDateString|toTimeString|toISOString|toUTCString|` +
		`\.get(UTC)?(Hours|Minutes|Seconds|Day|Date|Month|FullYear)\(`,
)

// TestOneFileOfTheConsoleFormatsTimes: every time on a page goes through format.ts, so that a page has one zone.
func TestOneFileOfTheConsoleFormatsTimes(t *testing.T) {
	for name, text := range consoleSources(t) {
		found := ownTimes.FindAllString(text, -1)
		switch name {
		case "format.ts", "zone.svelte.ts":
			if len(found) == 0 {
				t.Errorf("%s formats no time: does this test still look at the right file?", name)
			}
		default:
			for _, f := range found {
				t.Errorf("controller/console/web/src/%s uses %s: call zoned, utc, stamp or field of format.ts", name, f)
			}
		}
	}
}

// TestTheConsoleCompletesWhatTheFilterTakes: the page offers every key of a filter of machines, and no other.
func TestTheConsoleCompletesWhatTheFilterTakes(t *testing.T) {
	text := consoleSources(t)["filters.ts"]
	_, list, _ := strings.Cut(text, "export const machineKeys")
	list, _, _ = strings.Cut(list, "]\n")
	for key := range query.Machines.Keys {
		if key != "conditions." && !strings.Contains(list, "'"+key+"'") {
			t.Errorf("filters.ts offers no key %s", key)
		}
	}
	offered := regexp.MustCompile(`'([a-z_]+\.?)'`).FindAllStringSubmatch(list, -1)
	if len(offered) == 0 {
		t.Fatal("filters.ts offers no key")
	}
	for _, m := range offered {
		if !slices.Contains([]string{"true", "false", "unknown"}, m[1]) && query.Machines.Keys[m[1]] == nil {
			t.Errorf("filters.ts offers the key %s, which the API has not", m[1])
		}
	}
	_, conditions, _ := strings.Cut(text, "const conditions = [")
	conditions, _, _ = strings.Cut(conditions, "]")
	var have []string
	for _, m := range regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(conditions, -1) {
		have = append(have, m[1])
	}
	for _, c := range fleet.ConditionTypes() {
		if !slices.Contains(have, string(c)) {
			t.Errorf("filters.ts does not offer the condition %s", c)
		}
	}
	if len(have) != len(fleet.ConditionTypes()) {
		t.Errorf("filters.ts offers the conditions %v, the API has %v", have, fleet.ConditionTypes())
	}
}
