package setup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// role is the controller's user, its role in PostgreSQL, and the name of its database.
	role = "ingot"
	// localURL reaches the database of this machine by peer authentication.
	localURL = "postgres:///ingot?host=/run/postgresql"
	// postgresTime is how long PostgreSQL may take to start.
	postgresTime = time.Minute
)

func (o *install) checkDatabase(ctx context.Context) (string, []change, error) {
	wanted := o.databaseURL
	if wanted == "" && o.files.exists(configFile) {
		c, _, err := o.readConfig()
		if err != nil {
			return "", nil, err
		}
		wanted = c.Database.URL
	}
	if wanted != "" && wanted != localURL {
		return o.checkRemote(ctx, wanted)
	}
	active := o.active(ctx, "postgresql") && o.sql(ctx, "select 1") == "1"
	if !active && !o.files.exists("lib/systemd/system/postgresql.service") {
		return "", nil, errors.New("PostgreSQL is not installed: apt install postgresql, or name one elsewhere with " +
			"--database-url")
	}
	var missing []change
	if !active {
		missing = append(missing, change{"start PostgreSQL", o.startPostgres})
	}
	if !active || o.sql(ctx, "select 1 from pg_roles where rolname = '"+role+"'") != "1" {
		missing = append(missing, change{"create role " + role, func(ctx context.Context) error {
			return o.unlessThere(ctx, "select 1 from pg_roles where rolname = '"+role+"'", "createuser", role)
		}})
	}
	if !active || o.sql(ctx, "select 1 from pg_database where datname = '"+role+"'") != "1" {
		missing = append(missing, change{"create database " + role, func(ctx context.Context) error {
			return o.unlessThere(ctx, "select 1 from pg_database where datname = '"+role+"'",
				// Whatever language the machine was installed in.
				"createdb", "--owner="+role, "--encoding=UTF8", "--locale=C.UTF-8", "--template=template0", role)
		}})
	}
	return "role and database " + role + ", by peer authentication", missing, nil
}

// checkRemote holds that the controller's user reaches a database elsewhere.
func (o *install) checkRemote(ctx context.Context, url string) (string, []change, error) {
	_, err := o.run(ctx, program{name: "ingot-controller", args: []string{"migrate", "version"}, user: role,
		env: []string{"INGOT_DATABASE_URL=" + url}})
	if err != nil {
		return "", nil, fmt.Errorf("the controller cannot use the database: %w", err)
	}
	return "the one of database.url answers", nil, nil
}

func (o *install) startPostgres(ctx context.Context) error {
	if _, err := o.run(ctx, program{name: "systemctl", args: []string{"enable", "--now", "postgresql"}}); err != nil {
		return err
	}
	return until(ctx, postgresTime, func() error {
		if o.sql(ctx, "select 1") != "1" {
			return errors.New("PostgreSQL does not answer: journalctl -u 'postgresql*'")
		}
		return nil
	})
}

// unlessThere runs a program as the superuser unless the query finds something.
func (o *install) unlessThere(ctx context.Context, query, name string, args ...string) error {
	if o.sql(ctx, query) == "1" {
		return nil
	}
	_, err := o.run(ctx, program{name: name, args: args, user: "postgres"})
	return err
}

// sql returns the answer to a query of the superuser, or "" where there is none.
func (o *install) sql(ctx context.Context, query string) string {
	out, err := o.run(ctx, program{name: "psql", args: []string{"-XAtc", query, "postgres"}, user: "postgres"})
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}

func (o *install) active(ctx context.Context, unit string) bool {
	_, err := o.run(ctx, program{name: "systemctl", args: []string{"is-active", "--quiet", unit}})
	return err == nil
}

func (o *install) enabled(ctx context.Context, unit string) bool {
	_, err := o.run(ctx, program{name: "systemctl", args: []string{"is-enabled", "--quiet", unit}})
	return err == nil
}
