package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/catalog/bucket"
	"github.com/ingot-metal/ingot/controller/catalog/imagestore"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/schema"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/doctor"
)

const (
	// caSoon is long enough to give every agent another root.
	caSoon = 90 * 24 * time.Hour
	// Free bytes for keys and logs, and for images.
	leastFree, enoughFree             = 1 << 30, 4 << 30
	leastFreeImages, enoughFreeImages = 1 << 30, 16 << 30
	// mostSkew is how far the clocks of controller and database may differ before deadlines become wrong.
	mostSkew = 2 * time.Second
	// databaseTime bounds the wait for the database.
	databaseTime = 10 * time.Second
)

func doctorCommand(f *flags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what the controller needs on this machine, and say what to do about what is missing",
		Long: `Check what the controller needs on this machine: configuration, keys, tokens, database and its settings, ports,
space, time, the bucket of images. Root checks with the rights of the user that owns the data directory. It changes
nothing.

Exit code 3 when a check fails; warnings are not failures.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output is text or json, not %q", output)
			}
			list := diagnose(cmd.Context(), f)
			if output == "json" {
				return doctor.JSON(cmd.OutOrStdout(), list)
			}
			return doctor.Text(cmd.OutOrStdout(), list)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// readyCommand is a health check for containers, which have no curl.
func readyCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "ready",
		Short: "Ask the controller on this machine whether it is ready",
		Long: `Ask /readyz of listen.http. Exit code 1 says that the controller is not ready, or does not run: a health
check where there is no curl.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.load()
			if err != nil {
				return err
			}
			return askReady(cmd.Context(), c.Listen.HTTP)
		},
	}
}

func diagnose(ctx context.Context, f *flags) []doctor.Finding {
	c, err := f.load()
	if err != nil {
		return []doctor.Finding{doctor.Fault("configuration", err.Error(), "correct it; ingot-controller config check")}
	}
	if err := becomeOwner(c.DataDir); err != nil {
		return []doctor.Finding{doctor.Fault("data", err.Error(), "ingot setup makes it; or the package ingot-controller")}
	}
	list := []doctor.Finding{checkReadable(f.config), doctor.Synchronized(), checkData(c.DataDir),
		doctor.Space(c.DataDir, leastFree, enoughFree, "df -h "+c.DataDir+"; make room"),
		doctor.Space(c.ImagesPath(), leastFreeImages, enoughFreeImages,
			"ingot image list; ingot image remove those that are not installed, or set images_dir"),
		checkTokens(c.TokensFile)}
	list = append(list, checkBucket(ctx, c.Images.Bucket)...)
	list = append(list, checkCA(filepath.Join(c.DataDir, "ca"), time.Now())...)
	list = append(list, checkNames(ctx, c.TLS.Names)...)
	list = append(list, checkDatabase(ctx, *c)...)
	return append(list, checkServing(ctx, c)...)
}

// becomeOwner takes the rights of the directory's owner, where root calls, so that the checks have the controller's
// rights.
func becomeOwner(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || owner.Uid == 0 {
		return nil
	}
	groups := []int{int(owner.Gid)}
	if u, err := user.LookupId(strconv.Itoa(int(owner.Uid))); err == nil {
		names, err := u.GroupIds()
		if err != nil {
			return fmt.Errorf("read the groups of %s: %w", u.Username, err)
		}
		for _, name := range names {
			if id, err := strconv.Atoi(name); err == nil {
				groups = append(groups, id)
			}
		}
	}
	if err := nameForPostgres(owner.Uid); err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups(groups), syscall.Setgid(int(owner.Gid)),
		syscall.Setuid(int(owner.Uid))); err != nil {
		return fmt.Errorf("take the rights of the controller's user: %w", err)
	}
	return nil
}

func checkReadable(path string) doctor.Finding {
	if path == "" {
		return doctor.Warning("configuration", "no file; built-in values and environment", "--config FILE")
	}
	if err := unix.Access(path, unix.R_OK); err != nil {
		return doctor.Fault("configuration", "the controller's user cannot read "+path+": "+err.Error(),
			"chgrp ingot "+path+
				"; chmod 640 "+path)
	}
	return doctor.Well("configuration", path)
}

func checkData(dir string) doctor.Finding {
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return doctor.Fault("data", dir+" cannot be written: "+err.Error(), "chown -R ingot: "+dir+
			"; mount -o remount,rw its file system")
	}
	return doctor.Well("data", dir+" can be written")
}

func checkTokens(path string) doctor.Finding {
	t, err := auth.OpenTokens(path, slog.New(slog.DiscardHandler))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return doctor.Fault("tokens", "there is no "+path, "ingot-controller token add NAME --scope admin")
	case errors.Is(err, os.ErrPermission):
		return doctor.Fault("tokens", "the controller's user cannot read "+path, "chgrp ingot "+path+"; chmod 640 "+path)
	case err != nil:
		return doctor.Fault("tokens", err.Error(), "correct "+path)
	}
	return doctor.Well("tokens", fmt.Sprintf("%d in %s", len(t.OfFile()), path))
}

func checkBucket(ctx context.Context, c config.Bucket) []doctor.Finding {
	if c.Name == "" {
		return nil
	}
	b, err := imagestore.Bucket(c, bucket.Config{Tries: 1})
	if err != nil {
		return []doctor.Finding{doctor.Fault("bucket", err.Error(), "correct what it names; the controller's user reads it")}
	}
	defer b.Close()
	return b.Check(ctx)
}

func checkCA(dir string, now time.Time) []doctor.Finding {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return []doctor.Finding{doctor.Warning("ca", "there is no CA in "+dir,
			"the controller makes it at its first start; of a controller that has run, restore it from a backup")}
	}
	root, intermediate, err := ca.Check(dir)
	if err != nil {
		return []doctor.Finding{doctor.Fault("ca", err.Error(), "restore "+dir+" from a backup")}
	}
	const remedy = "ingot ca rotate, before this one ends"
	return []doctor.Finding{
		doctor.Ends("ca", "the root certificate", root, now, caSoon, remedy),
		doctor.Ends("ca", "the intermediate certificate", intermediate, now, caSoon, remedy),
	}
}

func checkNames(ctx context.Context, names []string) []doctor.Finding {
	var list []doctor.Finding
	for _, name := range names {
		if net.ParseIP(name) != nil {
			continue
		}
		if _, err := net.DefaultResolver.LookupHost(ctx, name); err != nil {
			list = append(list, doctor.Warning("name", err.Error(), "add "+name+" to the DNS, or take it out of tls.names"))
		}
	}
	return list
}

func checkDatabase(ctx context.Context, c config.Config) []doctor.Finding {
	ctx, cancel := context.WithTimeout(ctx, databaseTime)
	defer cancel()
	fault := func(err error) []doctor.Finding {
		return []doctor.Finding{doctor.Fault("database", err.Error(), "systemctl status postgresql; then database.url")}
	}
	if c.Dev {
		return []doctor.Finding{doctor.Warning("database", "--dev: a private one, for trying out", "")}
	}
	url, stop, err := controller.OpenDatabase(ctx, c, nil)
	if err != nil {
		return fault(err)
	}
	defer stop()
	s, err := store.New(ctx, store.Config{URL: url, PoolSize: 1})
	if err != nil {
		return fault(err)
	}
	defer s.Close()
	settings, err := s.Schema.Settings(ctx)
	if err != nil {
		return fault(err)
	}
	list := judgeDatabase(settings, c.Database.PoolSize, time.Now())
	have, err := s.Schema.SchemaVersion(ctx)
	if err != nil {
		return append(list, fault(err)...)
	}
	newest, err := schema.Newest()
	if err != nil {
		return append(list, fault(err)...)
	}
	return append(list, judgeSchema(have, newest, s.Schema.CheckProgram(ctx)))
}

// judgeDatabase returns the findings of the settings against the controller's promises.
func judgeDatabase(s schema.Settings, pool int, now time.Time) []doctor.Finding {
	list := []doctor.Finding{doctor.Well("database", fmt.Sprintf("PostgreSQL %d.%d answers", s.Version/10000,
		s.Version%10000))}
	if s.Version < schema.OldestServer {
		list[0].Level, list[0].Remedy = doctor.Fail, fmt.Sprintf(
			"upgrade PostgreSQL to %d or later",
			schema.OldestServer/10000,
		)
	}
	for _, setting := range []struct {
		name, value string
		well        bool
	}{
		{"fsync", s.Fsync, s.Fsync == "on"}, {"full_page_writes", s.FullPageWrites, s.FullPageWrites == "on"},
		{"synchronous_commit", s.SynchronousCommit, s.SynchronousCommit != "off"},
	} {
		if !setting.well {
			list = append(list, doctor.Fault("database", setting.name+" is "+setting.value+
				": a loss of power can undo work that was acknowledged", "ALTER SYSTEM RESET "+setting.name+
				"; SELECT pg_reload_conf(); then see postgresql.conf"))
		}
	}
	if !s.Checksums {
		list = append(list, doctor.Warning("database", "data_checksums is off: damaged "+
			"pages are not noticed", "with PostgreSQL stopped: pg_checksums --enable"))
	}
	if free := s.MaxConnections - s.Reserved; free < pool {
		list = append(list,
			doctor.Fault("database", fmt.Sprintf("max_connections leaves %d, and database.pool_size is %d for each controller",
				free, pool), "raise max_connections and restart PostgreSQL, or lower database.pool_size"))
	}
	if skew := now.Sub(s.Time).Abs(); skew > mostSkew {
		list = append(list, doctor.Warning("time", "the database's clock differs by "+skew.Round(time.Second).String(),
			"a time service on both: apt install chrony"))
	}
	return list
}

func judgeSchema(have, newest int, refusal error) doctor.Finding {
	f := doctor.Well("schema", fmt.Sprintf("version %d", have))
	switch {
	case have < newest:
		f.Level, f.What = doctor.Warn, fmt.Sprintf("version %d, and this program knows %d", have, newest)
		f.Remedy = "ingot-controller migrate up; the controller does it at its start unless database.migrate is false"
	case refusal != nil:
		f.Level, f.What = doctor.Fail, refusal.Error()
		f.Remedy = "install the newer ingot-controller again"
	case have > newest:
		f.Level, f.What = doctor.Warn, fmt.Sprintf(
			"version %d, and this program, which may run on it, knows %d",
			have,
			newest,
		)
		f.Remedy = "install the newer ingot-controller again when you no longer need the older one"
	}
	return f
}

// checkServing asks a controller that runs, and looks at the ports for one that does not.
func checkServing(ctx context.Context, c *config.Config) []doctor.Finding {
	err := awaitReady(ctx, c.Listen.HTTP)
	var opErr *net.OpError
	if err == nil {
		return []doctor.Finding{doctor.Well("controller", "runs and is ready")}
	}
	if !errors.As(err, &opErr) {
		return []doctor.Finding{doctor.Fault("controller", "runs and is not ready: "+err.Error(),
			"journalctl -u ingot-controller")}
	}
	list := doctor.Unit(ctx, "ingot-controller.service")
	if len(list) == 0 {
		list = append(list, doctor.Warning("controller", "does not run", "systemctl enable --now ingot-controller"))
	}
	for _, address := range []string{c.Listen.Frontpage, c.Listen.Fleet, c.Listen.Enrolment, c.Listen.HTTP,
		c.Listen.REST} {
		if address != "" {
			list = append(list, doctor.Port(ctx, "tcp", address))
		}
	}
	return list
}

// starting is how long doctor waits for a controller that reports to be starting: its unit is active before it is
// ready.
const starting = 20 * time.Second

func awaitReady(ctx context.Context, address string) error {
	for end := time.Now().Add(starting); ; {
		err := askReady(ctx, address)
		if err == nil || !strings.Contains(err.Error(), "starting") || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-clock.Real().After(200 * time.Millisecond):
		}
	}
}

func askReady(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen.http: %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, strings.Join(strings.Fields(string(text)), " "))
	}
	return err
}
