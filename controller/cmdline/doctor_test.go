package cmdline

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/doctor"
	"github.com/ingot-metal/ingot/internal/localpg"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// installation is a controller's place on this machine that doctor looks at.
type installation struct {
	t                   *testing.T
	dir, config, tokens string
	database            *localpg.Cluster
	port                string
}

// install makes one without a fault, with a PostgreSQL of its own.
func install(t *testing.T, settings map[string]string) *installation {
	dir := testkit.TempDir(t)
	i := &installation{t: t, dir: dir, config: filepath.Join(dir, "controller.yaml"), tokens: filepath.Join(dir, "tokens")}
	var err error
	i.database, err = localpg.Open(t.Context(), localpg.Config{Dir: testkit.TempDir(t), Settings: settings,
		Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.database.Stop(t.Context()) }) // it ends with this process at the latest
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, i.port, _ = net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`data_dir: %s
tokens_file: %s
database: {url: %q, pool_size: 4}
listen: {frontpage: "127.0.0.1:%s", fleet: "127.0.0.1:0", enrolment: "127.0.0.1:0", http: "127.0.0.1:1"}
tls: {names: [localhost]}
`, dir, i.tokens, i.database.URL(localpg.Database), i.port)
	if err := os.WriteFile(i.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.AddToken(i.tokens, "admin", access.ScopeAdmin); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.New(ca.Config{Dir: filepath.Join(dir, "ca")}); err != nil {
		t.Fatal(err)
	}
	i.run("migrate", "up")
	return i
}

// run runs the command line and returns what it prints and its error.
func (i *installation) run(args ...string) (string, error) {
	cmd := root("v-test")
	out := &strings.Builder{}
	cmd.SetOut(out)
	cmd.SetArgs(append(args, "--config", i.config))
	err := cmd.ExecuteContext(i.t.Context())
	return out.String(), err
}

// finds checks that doctor reports this of a check.
func (i *installation) finds(level doctor.Level, check, what string) {
	i.t.Helper()
	list := diagnose(i.t.Context(), &flags{config: i.config})
	for _, f := range list {
		if f.Check == check && f.Level == level && strings.Contains(f.What, what) {
			if level != doctor.OK && f.Remedy == "" {
				i.t.Errorf("no remedy: %+v", f)
			}
			return
		}
	}
	i.t.Errorf("doctor does not find %s %s %q:\n%v", level, check, what, list)
}

// TestDoctorFindsFaultsOfTheController brings about each fault and takes the remedy.
func TestDoctorFindsFaultsOfTheController(t *testing.T) {
	i := install(t, nil)
	out, err := i.run("doctor")
	if err != nil || !strings.Contains(out, "ok    database") || strings.Contains(out, "fail") {
		t.Fatalf("without a fault: %v\n%s", err, out)
	}
	i.finds(doctor.Warn, "controller", "does not run")

	t.Log("a port is taken")
	other, err := net.Listen("tcp4", "127.0.0.1:"+i.port)
	if err != nil {
		t.Fatal(err)
	}
	i.finds(doctor.Fail, "port", "another program has tcp 127.0.0.1:"+i.port)
	if out, err := i.run("doctor", "-o", "json"); err == nil || !strings.Contains(out, `"level": "fail"`) {
		t.Errorf("as JSON: %v\n%s", err, out)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	i.finds(doctor.OK, "port", "tcp 127.0.0.1:"+i.port)

	t.Log("others can read the CA's key")
	key := filepath.Join(i.dir, "ca", "v1", "intermediate.key")
	i.must(os.Chmod(key, 0o644))
	i.finds(doctor.Fail, "ca", "mode is 0644")
	i.must(os.Chmod(key, 0o600))
	i.finds(doctor.OK, "ca", "root certificate is valid until")

	t.Log("there are no tokens, and then a faulty file")
	i.must(os.Remove(i.tokens))
	i.finds(doctor.Fail, "tokens", "there is no "+i.tokens)
	i.must(os.WriteFile(i.tokens, []byte("nonsense\n"), 0o600))
	i.finds(doctor.Fail, "tokens", "line 1")
	i.must(os.Remove(i.tokens))
	if _, err := i.run("token", "add", "admin", "--scope", "admin"); err != nil {
		t.Fatal(err)
	}
	i.finds(doctor.OK, "tokens", "1 in "+i.tokens)

	t.Log("the schema is not there")
	if _, err := i.run("migrate", "down"); err != nil {
		t.Fatal(err)
	}
	i.finds(doctor.Warn, "schema", "version 0")
	if _, err := i.run("migrate", "up"); err != nil {
		t.Fatal(err)
	}
	i.finds(doctor.OK, "schema", "version")

	t.Log("a newer program has migrated, and then taken away what this one uses")
	i.sql("UPDATE schema_version SET version = version + 1")
	i.finds(doctor.Warn, "schema", "which may run on it")
	i.sql("UPDATE schema_version SET needs = version")
	i.finds(doctor.Fail, "schema", "needs a program that knows version")

	t.Log("the database is away")
	i.must(i.database.Stop(t.Context()))
	i.finds(doctor.Fail, "database", "connect")

	t.Log("the configuration has a mistake")
	i.must(os.WriteFile(i.config, []byte("listn: {}\n"), 0o600))
	i.finds(doctor.Fail, "configuration", "listn")
}

func (i *installation) sql(statement string) {
	i.t.Helper()
	c, err := pgx.Connect(i.t.Context(), i.database.URL(localpg.Database))
	i.must(err)
	defer func() { _ = c.Close(i.t.Context()) }()
	_, err = c.Exec(i.t.Context(), statement)
	i.must(err)
}

func (i *installation) must(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}

// TestDoctorFindsASettingThatLosesWork: a PostgreSQL that was made fast for a benchmark, and too small.
func TestDoctorFindsASettingThatLosesWork(t *testing.T) {
	i := install(t, map[string]string{"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
		"max_connections": "6", "superuser_reserved_connections": "3"})
	for _, what := range []string{"fsync is off", "full_page_writes is off", "synchronous_commit is off",
		"max_connections leaves 3"} {
		i.finds(doctor.Fail, "database", what)
	}
	i.finds(doctor.Warn, "database", "data_checksums is off")
}

func TestDoctorWarnsOfCertificatesThatEnd(t *testing.T) {
	dir := filepath.Join(testkit.TempDir(t), "ca")
	if list := checkCA(dir, time.Now()); len(list) != 1 || list[0].Level != doctor.Warn {
		t.Errorf("without a CA: %+v", list)
	}
	a, err := ca.New(ca.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for days, want := range map[int]doctor.Level{-100: doctor.OK, -80: doctor.Warn, 1: doctor.Fail} {
		list := checkCA(dir, a.Expiries()["intermediate"].AddDate(0, 0, days))
		if got := list[len(list)-1]; got.Level != want {
			t.Errorf("%d days after the end: %+v, want %s", days, got, want)
		}
	}
}
