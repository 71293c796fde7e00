package alerts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/internal/testkit/document"
)

// rule is one of deploy/prometheus/ingot.rules.yaml: an alert, or the record of an objective.
type rule struct {
	Alert       string
	Record      string
	Expr        string
	For         string
	Labels      struct{ Severity string }
	Annotations struct{ Summary, Do, Runbook string }
}

func rulesFile(t *testing.T) string {
	t.Helper()
	return filepath.Join(document.Root(t), "deploy/prometheus/ingot.rules.yaml")
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// rules returns all rules; alerts returns those that fire.
func rules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(read(t, rulesFile(t))), &file); err != nil {
		t.Fatal(err)
	}
	var out []rule
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

func alerts(t *testing.T) []rule {
	t.Helper()
	return slices.DeleteFunc(rules(t), func(r rule) bool { return r.Alert == "" })
}

// TestRules runs Prometheus' own tests of rules. Each alert is made to fire in one of them.
func TestRules(t *testing.T) {
	t.Parallel()
	tests := filepath.Join(filepath.Dir(rulesFile(t)), "ingot.test.yaml")
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", rulesFile(t)}, {"test", "rules", tests}} {
		if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	text := read(t, tests)
	for _, r := range alerts(t) {
		fires := regexp.MustCompile(
			`(?s)expr: 'ALERTS\{alertname="` + r.Alert + `", alertstate="firing"\}'\n\s+exp_samples: \[\{`,
		)
		if !fires.MatchString(text) {
			t.Errorf("%s fires in no test", r.Alert)
		}
		if want := "docs/reference/alerts.md#" + strings.ToLower(r.Alert); r.Annotations.Runbook != want {
			t.Errorf("%s names the runbook %q, not %q", r.Alert, r.Annotations.Runbook, want)
		}
	}
}

// TestRulesAskForMetricsThatThereAre: a rule on a series that does not exist never fires.
func TestRulesAskForMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	page := read(t, filepath.Join(document.Root(t), "docs/reference/metrics.md"))
	for _, r := range rules(t) {
		for _, name := range regexp.MustCompile(`ingot_\w+`).FindAllString(r.Expr, -1) {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
			if !strings.Contains(page, "| `"+name+"` |") {
				t.Errorf("%s asks for %s, which is no metric", r.Alert+r.Record, name)
			}
		}
	}
}

func TestReferenceAlerts(t *testing.T) {
	var b strings.Builder
	b.WriteString("For Prometheus: `deploy/prometheus/ingot.rules.yaml`, which the package of the controller has below\n" +
		"`/usr/share/doc/ingot-controller/examples/`. It expects each controller's `/metrics` as a target of job `ingot`.\n")
	for _, r := range alerts(t) {
		after := "at once"
		if r.For != "0m" {
			after = "after " + r.For
		}
		b.WriteString(
			"\n## " + r.Alert + "\n\n" + placeholders.Replace(r.Annotations.Summary) + " (" + r.Labels.Severity + ", " +
				after + ")\n\n```promql\n" + r.Expr + "\n```\n\n" + placeholders.Replace(r.Annotations.Do) + "\n",
		)
	}
	document.Check(t, "alerts.md", "Alerts", b.String())
}

var placeholders = strings.NewReplacer("{{ $labels.instance }}", "INSTANCE", "{{ $labels.site }}", "SITE",
	"{{ $labels.segment }}", "SEGMENT", "{{ $labels.type }}", "TYPE", "{{ $labels.state }}", "STATE",
	"{{ $labels.certificate }}", "CERTIFICATE", "{{ $labels.client }}", "CLIENT", "{{ $labels.why }}", "WHY",
	"{{ $labels.slo }}", "SLO",
	"{{ $value }}", "N", "{{ $value | humanizeDuration }}", "DURATION", "{{ $value | humanizePercentage }}", "N%")
