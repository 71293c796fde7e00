package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/internal/localpg"
)

// dump writes the database to out and returns the major version of the pg_dump that did it.
func dump(ctx context.Context, databaseURL string, server int, out io.Writer) (int, error) {
	program, major, err := localpg.Program("pg_dump", server)
	if err != nil {
		return 0, err
	}
	// It is compressed with the rest.
	return major, run(ctx, databaseURL, nil, out, program, "--format=custom", "--compress=0", "--no-owner", "--no-acl",
		"--lock-wait-timeout=60s")
}

// load restores a dump in one transaction. The program must be as new as the pg_dump that made it.
func load(ctx context.Context, databaseURL string, major int, in io.Reader) error {
	program, _, err := localpg.Program("pg_restore", major)
	if err != nil {
		return err
	}
	return run(ctx, databaseURL, in, nil, program, "--single-transaction", "--exit-on-error", "--no-owner", "--no-acl",
		"--no-comments")
}

func run(ctx context.Context, databaseURL string, in io.Reader, out io.Writer, program string, args ...string) error {
	clean, password, err := withoutPassword(databaseURL)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, append(args, "--dbname="+clean)...)
	cmd.Dir, cmd.Env = "/", os.Environ()
	if password != "" {
		cmd.Env = append(cmd.Env, "PGPASSWORD="+password)
	}
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(said.String())
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, text[max(0, len(text)-1000):])
	}
	return nil
}

// libpqParameters are those of a URL that PostgreSQL's programs know. The controller's driver takes others as settings
// of its session.
var libpqParameters = []string{"host", "hostaddr", "port", "dbname", "user", "passfile", "channel_binding",
	"connect_timeout", "client_encoding", "options", "sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl",
	"sslsni", "sslpassword", "gssencmode", "krbsrvname", "service", "target_session_attrs"}

var passwordParameter = regexp.MustCompile(`\bpassword\s*=\s*('(?:[^'\\]|\\.)*'|\S+)`)

// withoutPassword takes the password out of what everybody on the host can read in the list of processes.
func withoutPassword(databaseURL string) (clean, password string, err error) {
	parsed, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		return "", "", errors.New("database.url is not a PostgreSQL URL or connection string")
	}
	if !strings.HasPrefix(databaseURL, "postgres://") && !strings.HasPrefix(databaseURL, "postgresql://") {
		return passwordParameter.ReplaceAllLiteralString(databaseURL, ""), parsed.Password, nil
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "", "", errors.New("database.url is not a URL")
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for name := range query {
		if !slices.Contains(libpqParameters, name) {
			query.Del(name)
		}
	}
	u.RawQuery = query.Encode()
	return u.String(), parsed.Password, nil
}
