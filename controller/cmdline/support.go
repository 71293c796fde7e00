package cmdline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/support"
	"github.com/ingot-metal/ingot/internal/doctor"
	"github.com/ingot-metal/ingot/internal/supportbundle"
)

// logLines are the last of the unit's log.
const logLines = "20000"

func supportCommand(f *flags, version string) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Write what helpers want to see into one archive, without secrets",
		Long: `support-bundle writes a .tar.gz with version, configuration, what doctor says, metrics, the end of the log,
and from the database: schema and migrations, counts, queues, controllers, sites and agents with their
versions, and the last operations that failed with their timelines.

It holds no password, token, key, user-data, parameter or script output; names of machines, sites and hosts are in it.
What cannot be had, as while the database is down, is named in bundle.json, which also says what was cut. It is bounded:
4 MiB a file, 32 MiB and two minutes in all. Root reads the log and else has the rights of the controller's user.`,
		Example: "  ingot-controller support-bundle --config /etc/ingot/controller.yaml --out support.tar.gz",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			if out == "" {
				out = "ingot-support-" + now.UTC().Format("20060102-150405") + ".tar.gz"
			}
			// Before the rights of root are given up.
			file, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return fmt.Errorf("write the bundle: %w", err)
			}
			m, err := supportbundle.Write(cmd.Context(), file, supportbundle.Config{
				Program: "ingot-controller", Version: version, Folder: "ingot-support", Now: now, Parts: f.supportParts(),
				Secrets: f.knownSecrets(),
			})
			if err := errors.Join(err, file.Close()); err != nil {
				return errors.Join(err, os.Remove(out))
			}
			saySupport(cmd.OutOrStdout(), out, m)
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write, which must not exist (default: ingot-support-TIME.tar.gz)")
	return cmd
}

func saySupport(w io.Writer, path string, m supportbundle.Manifest) {
	fmt.Fprintf(w, "wrote %s: %d files in %s\n", path, len(m.Files), m.Took)
	var names []string
	for name := range m.Missing {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(w, "missing %s: %s\n", name, m.Missing[name])
	}
}

// supportParts are in the order in which rights are given up: doctor takes those of the controller's user for good.
func (f *flags) supportParts() []supportbundle.Part {
	parts := []supportbundle.Part{
		{Name: "config.yaml", Make: func(context.Context) ([]byte, error) {
			c, err := f.load()
			if err != nil {
				return nil, err
			}
			return shownConfig(*c)
		}},
		{Name: "log.txt", Make: unitLog},
		supportbundle.JSON("doctor.json", func(ctx context.Context) ([]doctor.Finding, error) {
			return diagnose(ctx, f), nil
		}),
		{Name: "metrics.txt", Make: func(ctx context.Context) ([]byte, error) {
			c, err := f.load()
			if err != nil {
				return nil, err
			}
			return scrape(ctx, c.Listen.HTTP)
		}},
	}
	return append(parts, support.Database(func(ctx context.Context) (*store.Store, error) {
		c, err := f.load()
		if err != nil {
			return nil, err
		}
		if c.Dev {
			return nil, errors.New("--dev is for trying out; ask the running controller with ingot support-bundle")
		}
		url, _, err := controller.OpenDatabase(ctx, *c, nil)
		if err != nil {
			return nil, err
		}
		return store.New(ctx, store.Config{URL: url, PoolSize: 2})
	})...)
}

// shownConfig is the configuration in force. The database's address keeps host and name alone.
func shownConfig(c config.Config) ([]byte, error) {
	c.Database.URL = shownURL(c.Database.URL)
	return yaml.Marshal(&c)
}

// shownURL returns what of a connection string is no secret: the rest may hold a password in more than one form.
func shownURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" {
		return "[not shown]"
	}
	kept := url.Values{}
	for _, key := range []string{"host", "port", "sslmode", "connect_timeout", "target_session_attrs"} {
		if v := u.Query().Get(key); v != "" {
			kept.Set(key, v)
		}
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawQuery: kept.Encode()}).String()
}

// knownSecrets are masked wherever they stand.
func (f *flags) knownSecrets() (out []string) {
	c, err := f.load()
	if err != nil {
		return nil
	}
	u, err := url.Parse(c.Database.URL)
	if err != nil {
		return []string{c.Database.URL}
	}
	if password, ok := u.User.Password(); ok {
		out = append(out, password, url.QueryEscape(password), url.PathEscape(password))
	}
	for _, key := range []string{"password", "sslpassword", "passfile"} {
		out = append(out, u.Query().Get(key))
	}
	return out
}

// unitLog is the end of the log of the systemd unit.
func unitLog(ctx context.Context) ([]byte, error) {
	var text, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "journalctl", "--unit", "ingot-controller", "--lines", logLines, "--no-pager",
		"--output", "short-iso-precise")
	cmd.Stdout, cmd.Stderr = &text, &said
	if err := cmd.Run(); err != nil {
		return text.Bytes(), fmt.Errorf("journalctl: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return text.Bytes(), nil
}

// scrape reads the metrics of the controller that runs here.
func scrape(ctx context.Context, address string) ([]byte, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen.http: %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the controller does not answer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: %s", resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, supportbundle.PartBytes))
}
