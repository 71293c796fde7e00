package invariants

import (
	"cmp"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

var (
	protoComment = regexp.MustCompile(`^\s*// ?(.*)$`)
	protoService = regexp.MustCompile(`^service (\w+) \{`)
	protoRPC     = regexp.MustCompile(`^\s+rpc (\w+)\(`)
	reasonText   = regexp.MustCompile(`^([A-Z_]+(?:, [A-Z_]+)*): (.+[.?!)]) Next: (.+)$`)
)

// protoComments calls what with each line of a proto that is no comment, and with the comment right above it.
func protoComments(text string, what func(line, comment string)) {
	var above []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := protoComment.FindStringSubmatch(line); m != nil {
			above = append(above, m[1])
			continue
		}
		what(line, strings.Join(above, " "))
		above = nil
	}
}

// TestOperatingGuideExplainsEveryReason checks that each reason has its place, its meaning and its next step: an
// operator who is woken at night looks it up.
func TestOperatingGuideExplainsEveryReason(t *testing.T) {
	var rows [][]string
	protoComments(readFile(t, reasonProto), func(line, comment string) {
		m := reasonLine.FindStringSubmatch(line)
		if m == nil || m[1] == "REASON_UNSPECIFIED" {
			return
		}
		text := reasonText.FindStringSubmatch(comment)
		if text == nil {
			t.Errorf("%s: the comment of %s is not `CODE: meaning. Next: what to do.`", reasonProto, m[1])
			return
		}
		rows = append(rows, []string{"`" + m[1] + "`", text[1], text[2], text[3]})
	})
	slices.SortFunc(rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	document.Check(t, "errors.md", "Errors", `The comments of `+"`"+reasonProto+"`"+`: every reason that a refused call
(`+"`google.rpc.ErrorInfo.reason`"+`), a failed operation (`+"`error.code`"+`) or a condition can have. Switch on the
reason, never on the message.

The second column is the gRPC code of a refused call. OPERATION marks failed operations, refused commands and
conditions; ATTENTION marks `+"`attention_reason`"+` of a machine.

`+document.Table([]string{"reason", "code", "meaning", "next step"}, rows))
}

// TestReferenceCalls describes the calls of clients: what each does, who may make it, and its path over HTTP.
func TestReferenceCalls(t *testing.T) {
	paths, table := httpPaths(t), auth.Table()
	services := map[string][][]string{}
	about := map[string]string{}
	files, err := filepath.Glob(filepath.Join(root, "api/baremetal/v1/*.proto"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		service := ""
		protoComments(readFile(t, relative(file)), func(line, comment string) {
			if m := protoService.FindStringSubmatch(line); m != nil {
				service, about[m[1]] = m[1], comment
			}
			if m := protoRPC.FindStringSubmatch(line); m != nil {
				name := "baremetal.v1." + service + "/" + m[1]
				rule := table["/"+name]
				services[service] = append(services[service],
					[]string{"`" + m[1] + "`", rule.Need.Scope().String(), strings.Join(paths[name], ", "), comment})
			}
		})
	}
	var b strings.Builder
	b.WriteString("The services of `api/baremetal/v1`, with the smallest scope of a bearer token and the path over HTTP " +
		"below\n`/api/v1`. The protos document every field. [API](api.md) has the rules that all calls share, and " +
		"[REST](rest.md) the\nrules of JSON.\n")
	for _, service := range slices.Sorted(maps.Keys(services)) {
		b.WriteString("\n## " + service + "\n\n" + about[service] + "\n\n")
		b.WriteString(document.Table([]string{"call", "scope", "HTTP", "what it does"}, services[service]))
	}
	document.Check(t, "calls.md", "Calls", b.String())
}

// httpPaths returns the methods and paths of api/gateway.yaml by "service/Method".
func httpPaths(t *testing.T) map[string][]string {
	t.Helper()
	type binding struct{ Get, Put, Post, Patch, Delete string }
	var doc struct {
		HTTP struct {
			Rules []struct {
				Selector string
				binding  `yaml:",inline"`
				More     []binding `yaml:"additional_bindings"`
			}
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "api/gateway.yaml")), &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, r := range doc.HTTP.Rules {
		dot := strings.LastIndexByte(r.Selector, '.')
		name := r.Selector[:dot] + "/" + r.Selector[dot+1:]
		for _, b := range append([]binding{r.binding}, r.More...) {
			for _, way := range [][2]string{{"GET", b.Get}, {"PUT", b.Put}, {"POST", b.Post}, {"PATCH", b.Patch},
				{"DELETE", b.Delete}} {
				if way[1] != "" {
					out[name] = append(out[name], way[0]+" `"+strings.TrimPrefix(way[1], "/api/v1")+"`")
				}
			}
		}
	}
	return out
}
