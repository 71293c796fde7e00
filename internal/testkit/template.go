package testkit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"runtime/debug"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// migration is what RegisterMigrate was given.
type migration struct {
	key   string
	apply func(ctx context.Context, url string) error
}

var registered struct {
	sync.Mutex
	migration *migration
	// template is the name of the finished template, once this process has seen it.
	template string
}

// RegisterMigrate registers how an empty database becomes a test's database. files are the input of apply: templates
// are identified by a hash over them and over the versions of all modules. apply must leave no connection open. Call it
// from an init function or TestMain; packages that share a server share the template.
func RegisterMigrate(files fs.FS, apply func(ctx context.Context, url string) error) {
	key, err := hashFiles(files)
	if err != nil {
		panic(fmt.Sprintf("testkit: read migrations: %v", err))
	}
	registered.Lock()
	defer registered.Unlock()
	registered.migration, registered.template = &migration{key: key, apply: apply}, ""
}

// hashFiles returns 16 hexadecimal digits.
func hashFiles(files fs.FS) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(files, path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(b), b) // a hash never fails to write
		return err
	})
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps { // River brings migrations of its own
			fmt.Fprintln(h, m.Path, m.Version)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), err
}

// migratedTemplate makes the template unless this process or another one has.
func migratedTemplate(ctx context.Context, admin string) (string, error) {
	registered.Lock()
	defer registered.Unlock()
	if registered.migration == nil {
		return "template0", nil
	}
	if registered.template != "" {
		return registered.template, nil
	}
	name := "tmpl_" + registered.migration.key
	if err := buildTemplate(ctx, admin, name, registered.migration.apply); err != nil {
		return "", fmt.Errorf("build database template: %w", err)
	}
	registered.template = name
	return name, nil
}

// buildTemplate builds under another name and renames, so that a template that exists is complete. Processes take
// turns by an advisory lock, which ends with its connection.
func buildTemplate(ctx context.Context, admin, name string, apply func(context.Context, string) error) (err error) {
	conn, err := pgconn.Connect(ctx, admin)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // the lock goes with the connection, however it ends
	run := func(sql string) (rows int, err error) {
		results, err := conn.Exec(ctx, sql).ReadAll()
		for _, r := range results {
			rows += len(r.Rows)
		}
		return rows, err
	}
	if _, err := run("SELECT pg_advisory_lock(hashtext('ingot testkit template'))"); err != nil {
		return err
	}
	if n, err := run(fmt.Sprintf("SELECT 1 FROM pg_database WHERE datname = '%s'", name)); err != nil || n > 0 {
		return err
	}
	building := name + "_new"
	if _, err := run("DROP DATABASE IF EXISTS " + building); err != nil {
		return err
	}
	if _, err := run("CREATE DATABASE " + building + " TEMPLATE template0"); err != nil {
		return err
	}
	url, err := withDatabase(admin, building)
	if err != nil {
		return err
	}
	if err := apply(ctx, url); err != nil {
		return fmt.Errorf("apply migrations: %w", err)
	}
	_, err = run(fmt.Sprintf("ALTER DATABASE %s RENAME TO %s", building, name))
	return err
}
