package invariants

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/jackc/pgx/v5"
)

// column is one column of the schema.
type column struct{ table, name string }

// mayHoldPersonalData is the one column that may, because one call empties it.
var mayHoldPersonalData = column{"audit_log", "event_data"}

// personalWords are parts of column names, between underscores, that mark a person or free text by one. "of_two"
// words are joined by an underscore.
var personalWords = strings.Fields(`
	email mail phone mobile fax birth birthday birthdate dob age gender sex ssn passport nationality
	person people human surname nickname username login password street city zip postal postcode country
	address addr contact owner author creator operator_name user_name first_name last_name full_name given_name
	family_name display_name real_name user_agent client_ip remote_ip peer_ip comment comments note notes remark
	remarks biography avatar photo signature_image`)

func TestNoMigrationAddsAPersonalColumn(t *testing.T) {
	columns := migratedColumns(t)
	if !slices.Contains(columns, mayHoldPersonalData) {
		t.Errorf("no column %v in the migrations", mayHoldPersonalData)
	}
	holdNothingPersonal(t, columns)
}

// holdNothingPersonal fails for each column that looks personal and is neither audit_log.event_data nor allowed.
func holdNothingPersonal(t *testing.T, columns []column) {
	t.Helper()
	allowed := map[column]bool{}
	for _, line := range readLines(t, "columns_allowed.txt") {
		table, name, _ := strings.Cut(strings.Fields(line)[0], ".")
		c := column{table, name}
		if !slices.Contains(columns, c) {
			t.Errorf("columns_allowed.txt names %s.%s, which does not exist", table, name)
		}
		allowed[c] = true
	}
	for _, c := range columns {
		word := personalWord(c.name)
		switch {
		case word == "" && allowed[c]:
			t.Errorf("columns_allowed.txt names %s.%s, which needs no allowance", c.table, c.name)
		case word != "" && !allowed[c]:
			t.Errorf("column %s.%s looks personal (%q): only audit_log.event_data may be", c.table, c.name, word)
		}
	}
}

// personalWord returns the marked word in a column's name, or "".
func personalWord(name string) string {
	padded := "_" + strings.ToLower(name) + "_"
	for _, word := range personalWords {
		if slices.ContainsFunc([]string{"_", "s_", "es_"},
			func(end string) bool { return strings.Contains(padded, "_"+word+end) }) {
			return word
		}
	}
	return ""
}

func TestPersonalWord(t *testing.T) {
	for name, want := range map[string]string{
		"contact_email": "email", "email": "email", "emails": "email", "user_agent": "user_agent", "comment": "comment",
		"mac_address": "address", "mac_addresses": "address", "agent_id": "", "image": "", "message": "", "stage": "",
	} {
		if got := personalWord(name); got != want {
			t.Errorf("personalWord(%q) = %q, want %q", name, got, want)
		}
	}
}

var (
	sqlComment  = regexp.MustCompile(`(?m)--.*$`)
	createTable = regexp.MustCompile(`(?is)\bCREATE\s+(?:UNLOGGED\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?([a-z_.]+)\s*\(`)
	alterTable  = regexp.MustCompile(`(?is)\bALTER\s+TABLE\s+(?:ONLY\s+)?([a-z_.]+)\s+([^;]*);`)
	addColumn   = regexp.MustCompile(`(?is)\bADD\s+COLUMN\s+(?:IF\s+NOT\s+EXISTS\s+)?([a-z_]+)`)
)

// migratedColumns reads the columns that the migrations create.
func migratedColumns(t *testing.T) []column {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "migrations", "*.up.sql"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no migrations found (%v)", err)
	}
	var columns []column
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("read migration: %v", err)
		}
		columns = append(columns, columnsOf(string(text))...)
	}
	return columns
}

func columnsOf(sql string) []column {
	sql = sqlComment.ReplaceAllString(sql, "")
	var columns []column
	for _, at := range createTable.FindAllStringSubmatchIndex(sql, -1) {
		table := sql[at[2]:at[3]]
		for _, part := range topLevelParts(sql[at[1]:]) {
			if name := columnName(part); name != "" {
				columns = append(columns, column{table, name})
			}
		}
	}
	for _, table := range alterTable.FindAllStringSubmatch(sql, -1) {
		for _, m := range addColumn.FindAllStringSubmatch(table[2], -1) {
			columns = append(columns, column{table[1], m[1]})
		}
	}
	return columns
}

// topLevelParts splits what follows an opening parenthesis at its own commas, up to the closing one.
func topLevelParts(body string) []string {
	var parts []string
	depth, start := 0, 0
	for i, r := range body {
		switch {
		case r == '(':
			depth++
		case r == ')' && depth == 0:
			return append(parts, body[start:i])
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			parts = append(parts, body[start:i])
			start = i + 1
		}
	}
	return parts
}

var tableConstraints = []string{"constraint", "primary", "unique", "foreign", "check", "exclude", "like"}

func columnName(part string) string {
	words := strings.Fields(part)
	if len(words) < 2 || slices.Contains(tableConstraints, strings.ToLower(words[0])) {
		return ""
	}
	return strings.Trim(words[0], `"`)
}

func TestColumnsOf(t *testing.T) {
	got := columnsOf(`
		-- CREATE TABLE not_this (a int);
		CREATE TABLE machines (
			machine_id text PRIMARY KEY CHECK (length(machine_id) > 0), -- its name
			cost numeric(10, 2) NOT NULL,
			UNIQUE (machine_id, cost)
		);
		ALTER TABLE machines ADD COLUMN owner_email text, ADD COLUMN rack numeric(3, 1);`)
	want := []column{{"machines", "machine_id"}, {"machines", "cost"}, {"machines", "owner_email"}, {"machines", "rack"}}
	if !slices.Equal(got, want) {
		t.Errorf("columnsOf gave %v, want %v", got, want)
	}
}

func TestMain(m *testing.M) { testkit.Main(m) }

// The migrations are text; what counts is what a database has after them, the job queue's tables included.
func TestNoMigratedColumnLooksPersonal(t *testing.T) {
	url := testkit.EmptyDatabase(t)
	s, err := store.New(t.Context(), store.Config{URL: url, Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	defer s.DB.Pool().Close()
	if err := s.Schema.MigrateUp(t.Context()); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	columns := columnsOfDatabase(t, url)
	if len(columns) < 100 {
		t.Fatalf("found %d columns: this is not the whole schema", len(columns))
	}
	holdNothingPersonal(t, columns)
}

func columnsOfDatabase(t *testing.T, url string) []column {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `SELECT table_name, column_name FROM information_schema.columns
		WHERE table_schema NOT IN ('pg_catalog', 'information_schema')`)
	if err != nil {
		t.Fatalf("read schema: %v", err)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (column, error) {
		var c column
		err := row.Scan(&c.table, &c.name)
		return c, err
	})
	if err != nil {
		t.Fatalf("read schema: %v", err)
	}
	return columns
}
