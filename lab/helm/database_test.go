//go:build helm

package helm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/localpg"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/clusters/kubetest"
)

// database is a Postgres as CloudNativePG runs one, for the cluster ingot-db: TLS with a certificate of the cluster's
// own CA, a role that owns a database, and a password.
type database struct {
	t             *testing.T
	cluster       *localpg.Cluster
	address, host string
	ca            []byte
}

func startDatabase(t *testing.T, address string) *database {
	t.Helper()
	d := &database{t: t, address: address, host: "ingot-db-rw." + namespace}
	ca := kubetest.NewAuthority(t, "ingot-db")
	d.ca = ca.PEM
	cert, key := ca.ServerOf(t, "ingot-db-rw", d.host)
	files := testkit.TempDir(t)
	group := d.groupOfServer()
	put := func(name string, text []byte) string {
		path := filepath.Join(files, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 0, group); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Chmod(files, 0o755); err != nil {
		t.Fatal(err)
	}
	settings := testkit.ServerSettings()
	settings["listen_addresses"], settings["ssl"] = address, "on"
	settings["ssl_cert_file"], settings["ssl_key_file"] = put("tls.crt", cert), put("tls.key", key)
	settings["hba_file"] = put("hba", []byte("local all all trust\nhostssl all app 127.0.0.0/8 scram-sha-256\n"))
	cluster, err := localpg.Open(t.Context(), localpg.Config{Dir: filepath.Join(testkit.TempDir(t), "pg"),
		Settings: settings, Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	d.cluster = cluster
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := cluster.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	d.psql(localpg.Database, "CREATE ROLE app LOGIN PASSWORD 'secret'")
	d.psql(localpg.Database, "CREATE DATABASE app OWNER app")
	return d
}

func (d *database) groupOfServer() int {
	d.t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		d.t.Fatal(err)
	}
	group, err := strconv.Atoi(u.Gid)
	if err != nil {
		d.t.Fatal(err)
	}
	return group
}

// psql runs a statement as the superuser and returns its rows.
func (d *database) psql(name, statement string) string {
	d.t.Helper()
	out, err := exec.CommandContext(d.t.Context(), "psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d",
		d.cluster.URL(name), "-c", statement).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s: %v\n%s", statement, err, out)
	}
	return string(out)
}

// secrets are those that CloudNativePG makes, as far as the chart uses them.
func (d *database) secrets() (app, ca map[string][]byte) {
	return map[string][]byte{
		"username": []byte("app"), "password": []byte("secret"), "dbname": []byte("app"), "port": []byte("5432"),
		"host": []byte("ingot-db-rw"),
		"uri":  fmt.Appendf(nil, "postgresql://app:secret@%s:5432/app", d.host),
	}, map[string][]byte{"ca.crt": d.ca}
}
