package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/controller/backup"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/pki"
)

func backupCommand(f *flags, version string) *cobra.Command {
	var out string
	var images bool
	cmd := &cobra.Command{
		Use:   "backup --out FILE.tar.zst",
		Short: "Write the controller into one file",
		Long: `backup writes one file with a consistent dump of the database, the CA, the key of stored secrets, the
configuration and the tokens. With --images it takes the image store along; otherwise it only lists what is in it. The
controller may run meanwhile. pg_dump of the server's version must be installed.

The file holds every secret of the controller, and is not encrypted. It has mode 0600, and its name only once it is
whole. Root works with the rights of the user that owns the data directory.`,
		Example: "  ingot-controller backup --config /etc/ingot/controller.yaml --out /var/backups/ingot.tar.zst",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.forBackup()
			if err != nil {
				return err
			}
			file, err := os.ReadFile(f.config)
			if err != nil {
				return fmt.Errorf("read configuration: %w", err)
			}
			o := backup.Options{Config: *c, ConfigFile: file, Images: images, Version: version, Now: time.Now()}
			m, size, err := writeBackup(cmd.Context(), o, out)
			if err == nil {
				sayBackup(cmd.OutOrStdout(), out, size, m)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write")
	cmd.Flags().BoolVar(&images, "images", false, "take the image store along")
	_ = cmd.MarkFlagRequired("out") // the flag is there
	return cmd
}

// forBackup reads the configuration of a controller that has a database of its own right.
func (f *flags) forBackup() (*config.Config, error) {
	if f.dev {
		return nil, errors.New("--dev is for trying out: stop it and copy its data directory")
	}
	if f.config == "" {
		return nil, errors.New("name the configuration with --config FILE")
	}
	return f.load()
}

// writeBackup renames the file once it is whole and on the disk.
func writeBackup(ctx context.Context, o backup.Options, path string) (m backup.Manifest, size int64, err error) {
	dir := filepath.Dir(path)
	file, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new-*") // mode 0600
	if err != nil {
		return m, 0, fmt.Errorf("write the backup: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close(), os.Remove(file.Name()))
		}
	}()
	scratch, err := os.CreateTemp(dir, ".ingot-dump-*")
	if err != nil {
		return m, 0, fmt.Errorf("write the backup: %w", err)
	}
	defer scratch.Close()                            //nolint:errcheck // it has no name any more
	if err = os.Remove(scratch.Name()); err != nil { // whatever happens, it ends with this process
		return m, 0, fmt.Errorf("write the backup: %w", err)
	}
	err = asOwner(o.Config.DataDir, func() (err error) {
		m, err = backup.Create(ctx, o, scratch, file)
		return err
	})
	if err != nil {
		return m, 0, err
	}
	info, err := file.Stat()
	if err == nil {
		err = errors.Join(file.Sync(), os.Rename(file.Name(), path))
	}
	if err != nil {
		return m, 0, fmt.Errorf("write the backup: %w", err)
	}
	return m, info.Size(), errors.Join(file.Close(), pki.SyncDir(dir))
}

func sayBackup(w io.Writer, path string, size int64, m backup.Manifest) {
	fmt.Fprintf(w, "wrote %s (%d bytes): schema %d, %d files, %d of them of the image store\n", path, size, m.Schema,
		len(m.Members), m.Images())
	if n := len(m.LeftOut); n > 0 {
		fmt.Fprintf(w, "not in it: %d images, which its manifest lists; --images takes them along\n", n)
	}
	fmt.Fprintf(w, `It holds every secret of the controller and is not encrypted: who reads it owns the fleet.
Next: copy it to another place, encrypted. Try it there: ingot-controller restore --check %s
`, filepath.Base(path))
}

func restoreCommand(f *flags) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "restore FILE.tar.zst",
		Short: "Make a controller of a backup on another, empty host",
		Long: `restore verifies every digest of a backup before it writes anything. Then it restores database, keys, tokens
and images, migrates the schema, and does what after-restore does: the fleet stays frozen until "ingot server thaw".

The configuration FILE says which database and which directories. Where it does not exist, the backup's is used and
written there. Database and data directory must be empty. Root works with the rights of the user that owns the data
directory.`,
		Example: "  ingot-controller restore --config /etc/ingot/controller.yaml /var/backups/ingot.tar.zst",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := os.Open(args[0])
			if err != nil {
				return fmt.Errorf("open the backup: %w", err)
			}
			defer file.Close() //nolint:errcheck // nothing was written
			a, err := backup.Open(cmd.Context(), file)
			if err != nil {
				return err
			}
			if check {
				fmt.Fprintf(cmd.OutOrStdout(), "whole: of %s, by ingot-controller %s, schema %d, %d files\n",
					a.Made.Format(time.RFC3339), a.Version, a.Schema, len(a.Members))
				return nil
			}
			return f.restore(cmd, a)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "verify the backup and write nothing")
	return cmd
}

func (f *flags) restore(cmd *cobra.Command, a *backup.Archive) error {
	c, had, err := f.configOf(a)
	if err != nil {
		return err
	}
	err = a.Restore(cmd.Context(), backup.Target{
		Config: *c, ConfigPath: f.config, Now: time.Now(),
		AsOwner: func(fn func() error) error { return asOwner(c.DataDir, fn) },
		Share:   func(path string) error { return shareWith(c.DataDir, path) },
	})
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "restored the backup of %s; the fleet is frozen, and older cursors are refused\n",
		a.Made.Format(time.RFC3339))
	if had {
		fmt.Fprintf(w, "%s is as it was; compare it with %s, if that is there\n", f.config, backup.BesideConfig(f.config))
	}
	if n := len(a.LeftOut); n > 0 {
		fmt.Fprintf(w, "not in the backup: %d images; add each again with ingot image add\n", n)
	}
	fmt.Fprintf(w, `Next:
1. Be sure that the old controller never starts again, and that its addresses lead here: %s
2. systemctl enable --now ingot-controller
3. Wait until AgentsNotSeen of "ingot server info" is 0, compare what was done after the backup, then
   ingot server thaw --comment "compared with ..."
`, strings.Join(c.TLS.Names, " "))
	return nil
}

// configOf reads the host's configuration, or the backup's where there is none. had reports whether there is one.
func (f *flags) configOf(a *backup.Archive) (c *config.Config, had bool, err error) {
	_, err = os.Stat(f.config)
	if f.config == "" || !errors.Is(err, fs.ErrNotExist) {
		c, err = f.forBackup()
		return c, true, err
	}
	temp, err := os.CreateTemp("", "ingot-controller-*.yaml")
	if err != nil {
		return nil, false, fmt.Errorf("read the backup's configuration: %w", err)
	}
	_, err = temp.Write(a.ConfigFile())
	if err = errors.Join(err, temp.Close()); err == nil {
		of := *f
		of.config = temp.Name()
		c, err = of.forBackup()
	}
	return c, false, errors.Join(err, os.Remove(temp.Name()))
}

// asOwner runs fn with the rights of the directory's owner, where root calls: the database knows the controller by its
// user, and new files must be that user's.
func asOwner(dir string, fn func() error) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fn()
	}
	if err != nil {
		return fmt.Errorf("find the controller's user: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || owner.Uid == 0 {
		return fn()
	}
	if err := nameForPostgres(owner.Uid); err != nil {
		return err
	}
	if err := errors.Join(syscall.Setegid(int(owner.Gid)), syscall.Seteuid(int(owner.Uid))); err != nil {
		return fmt.Errorf("take the rights of the controller's user: %w", err)
	}
	err = fn()
	return errors.Join(err, syscall.Seteuid(0), syscall.Setegid(0))
}

// nameForPostgres has clients of Postgres log in by the name of a user whose rights they are about to take, where the
// URL names none: peer authentication wants both alike, and a client would name the user that has started it.
func nameForPostgres(uid uint32) error {
	if os.Getenv("PGUSER") != "" {
		return nil
	}
	u, err := user.LookupId(strconv.Itoa(int(uid)))
	if err != nil {
		return fmt.Errorf("find the controller's user: %w", err)
	}
	return os.Setenv("PGUSER", u.Username)
}
