package standby

import (
	"context"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/localpg"
	"github.com/ingot-metal/ingot/lab/standby"
)

// manual is what docs/howto/several-controllers.md has an operator do for a standby of Postgres.
type manual struct {
	settings        map[string]string
	attach, promote []string // SQL
	url             *url.URL
}

// blocks are the fenced blocks of a language, in their order.
func blocks(text, language string) (out []string) {
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		out = append(out, strings.TrimSpace(m[1]))
	}
	return out
}

func readManual(t *testing.T) manual {
	t.Helper()
	b, err := os.ReadFile("../../../docs/howto/several-controllers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "\n## A standby of Postgres\n")
	text, _, _ = strings.Cut(text, "\n## ")
	ini, sql, yaml := blocks(text, "ini"), blocks(text, "sql"), blocks(text, "yaml")
	if len(ini) != 1 || len(sql) != 2 || len(yaml) != 1 {
		t.Fatalf("the manual has %d blocks of settings, %d of SQL and %d of configuration", len(ini), len(sql), len(yaml))
	}
	m := manual{settings: map[string]string{}, attach: strings.Split(sql[0], "\n"), promote: strings.Split(sql[1], "\n")}
	for line := range strings.Lines(ini[0]) {
		k, v, _ := strings.Cut(line, "=")
		m.settings[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	if m.url, err = url.Parse(strings.Trim(yaml[0][strings.Index(yaml[0], `"`):], `"`)); err != nil {
		t.Fatal(err)
	}
	return m
}

// urlOf is the manual's URL, with the servers of a pair for db1 and db2.
func (m manual) urlOf(t *testing.T, p *standby.Pair) string {
	t.Helper()
	u := *m.url
	q := u.Query()
	if q.Get("host") != "db1,db2" {
		t.Fatalf("the manual's servers are %q", q.Get("host"))
	}
	q.Set("host", p.Hosts())
	u.RawQuery = q.Encode()
	return u.String()
}

// as runs SQL on a server, and returns the answer of the last statement.
func as(t *testing.T, c *localpg.Cluster, statements []string) (answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, sql := range statements {
		var err error
		if answer, err = c.Query(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return answer
}
