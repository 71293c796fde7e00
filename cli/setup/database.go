package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
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
	names, err := o.databases(ctx)
	running := err == nil
	if !running && !o.files.exists("lib/systemd/system/postgresql.service") {
		return "", nil, errors.New("PostgreSQL is not installed: apt install postgresql, or name one elsewhere with " +
			"--database-url")
	}
	var missing []change
	if !running {
		missing = append(missing, change{"start PostgreSQL", o.startPostgres})
	}
	has := false
	if running {
		if has, err = o.hasRole(ctx); err != nil {
			return "", nil, err
		}
	}
	if !has {
		missing = append(missing, change{"make the role " + role, func(ctx context.Context) error {
			if has, err := o.hasRole(ctx); err != nil || has { // PostgreSQL may not have run when it was asked
				return err
			}
			return o.asSuperuser(ctx, "createuser", role)
		}})
	}
	if !slices.Contains(names, role) {
		missing = append(missing, change{"make the database " + role, func(ctx context.Context) error {
			if names, err := o.databases(ctx); err != nil || slices.Contains(names, role) {
				return err
			}
			// Whatever language the machine was installed in.
			return o.asSuperuser(ctx, "createdb", "--owner="+role, "--encoding=UTF8", "--locale=C.UTF-8",
				"--template=template0", role)
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
		if _, err := o.databases(ctx); err != nil {
			return fmt.Errorf("PostgreSQL does not answer: journalctl -u 'postgresql*': %w", err)
		}
		return nil
	})
}

func (o *install) asSuperuser(ctx context.Context, name string, args ...string) error {
	_, err := o.run(ctx, program{name: name, args: args, user: "postgres"})
	return err
}

// databases returns the names of the databases, or the error of a PostgreSQL that does not answer.
func (o *install) databases(ctx context.Context) ([]string, error) { return o.psql(ctx, "--list") }

// hasRole reports whether the controller's role is there.
func (o *install) hasRole(ctx context.Context) (bool, error) {
	names, err := o.psql(ctx, "--command", `\du `+role)
	return slices.Contains(names, role), err
}

// psql returns the first column of what a command of psql shows.
func (o *install) psql(ctx context.Context, args ...string) ([]string, error) {
	out, err := o.run(ctx, program{name: "psql", args: append([]string{"--no-psqlrc", "--no-align", "--tuples-only"},
		append(args, "postgres")...), user: "postgres"})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "|")
		names = append(names, name)
	}
	return names, nil
}

func (o *install) active(ctx context.Context, unit string) bool {
	_, err := o.run(ctx, program{name: "systemctl", args: []string{"is-active", "--quiet", unit}})
	return err == nil
}

// outdated reports whether a running unit has started before its configuration was written: a setup that ended in
// between has left it so.
func (o *install) outdated(ctx context.Context, unit, config string) bool {
	out, err := o.run(ctx, program{name: "systemctl", args: []string{"show", "--property=ActiveEnterTimestamp", "--value",
		"--timestamp=unix", unit}})
	if err != nil {
		return false
	}
	started, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimSpace(out), "@"), 10, 64)
	info, statErr := os.Stat(o.files.path(config))
	return err == nil && statErr == nil && info.ModTime().Unix() > started
}

func (o *install) enabled(ctx context.Context, unit string) bool {
	_, err := o.run(ctx, program{name: "systemctl", args: []string{"is-enabled", "--quiet", unit}})
	return err == nil
}
