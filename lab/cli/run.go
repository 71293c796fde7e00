package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/ext4"
	"github.com/ingot-metal/ingot/internal/imagelayout"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/vm"
)

// Files that vm run keeps in the machine's directory, beside those of package vm.
const (
	initrdFile = "initrd.img"
	stateFile  = "state.img"
)

type runFlags struct {
	imageFlags
	machine vm.Config
	token   string
	files   []string
}

func vmRun() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run", Short: "Run a machine in the foreground and print its serial console", Args: cobra.NoArgs,
		Long: `Run a machine in the foreground and print its serial console, until it switches itself off or is ended by
SIGINT or SIGTERM. The state disk in --dir is made on the first run, with the files given, and kept afterwards.
Other vm commands control the machine by the same --dir.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.machine.Name, "name", "", "name of the machine (default: last part of --dir)")
	flags.StringVar(&f.machine.Dir, "dir", "", "directory of the machine")
	flags.StringVar(&f.machine.MAC, "mac", "", "MAC address (default: derived from the name)")
	flags.StringVar(&f.machine.Serial, "serial", "", "serial number in the DMI tables (default: the name)")
	flags.StringVar(&f.machine.UUID, "uuid", "", "system UUID in the DMI tables (default: derived from the name)")
	flags.IntVar(&f.machine.MemoryMB, "memory", 0, "memory in MiB (default 256)")
	flags.StringVar((*string)(&f.machine.Firmware), "firmware", string(vm.Direct), "direct, bios or uefi")
	flags.StringVar(&f.machine.Cmdline, "cmdline", "", "kernel command line; no secrets (default \""+vm.DefaultCmdline+
		"\")")
	flags.IntSliceVar(&f.machine.Forward, "forward", nil,
		"TCP port of the machine that this host can reach; see vm forwarded")
	flags.StringVar(&f.token, "token-file", "", "bootstrap token bundle for the state disk (as "+imagelayout.TokenFile+")")
	flags.StringArrayVar(&f.files, "file", nil, "further file for the state disk, as name=path; may be repeated")
	require(cmd, "agent-binary", "dir")
	return cmd
}

func (f *runFlags) run(ctx context.Context, out io.Writer) error {
	cfg, err := f.prepare(ctx)
	if err != nil {
		return err
	}
	console := filepath.Join(cfg.Dir, vm.SerialFile)
	from, err := size(console)
	if err != nil {
		return err
	}
	machine, err := vm.Start(ctx, cfg)
	if err != nil {
		return err
	}
	group, _ := task.New(context.WithoutCancel(ctx))
	over := make(chan struct{})
	group.Go("console", func(context.Context) error { return follow(console, from, out, over) })
	err = machine.Wait(ctx)
	if ctx.Err() != nil {
		err = nil // told to end
	}
	err = errors.Join(err, machine.Stop())
	close(over)
	return errors.Join(err, group.Wait())
}

// prepare makes what isn't there yet in the machine's directory.
func (f *runFlags) prepare(ctx context.Context) (vm.Config, error) {
	cfg := f.machine
	if cfg.Name == "" {
		abs, err := filepath.Abs(cfg.Dir)
		if err != nil {
			return cfg, err
		}
		cfg.Name = filepath.Base(abs)
	}
	if err := vm.Available(cfg.Firmware); err != nil {
		return cfg, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return cfg, err
	}
	cfg.Initrd, cfg.StateDisk = filepath.Join(cfg.Dir, initrdFile), filepath.Join(cfg.Dir, stateFile)
	k, err := f.build(ctx, cfg.Initrd)
	if err != nil {
		return cfg, err
	}
	cfg.Kernel = k.Image
	return cfg, f.stateDisk(cfg.StateDisk)
}

func (f *runFlags) stateDisk(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	files := f.files
	if f.token != "" {
		files = append([]string{imagelayout.TokenFile + "=" + f.token}, files...)
	}
	contents := map[string][]byte{}
	for _, arg := range files {
		name, source, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return fmt.Errorf("--file %q is not name=path", arg)
		}
		data, err := os.ReadFile(source)
		if err != nil {
			return fmt.Errorf("read file for the state disk: %w", err)
		}
		contents[name] = data
	}
	return ext4.StateDisk(path, contents)
}

func size(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

const followInterval = 50 * time.Millisecond

// follow copies the data that is appended to the file until over is closed, and then the rest.
func follow(path string, from int64, out io.Writer, over <-chan struct{}) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("follow console: %w", err)
	}
	defer f.Close() // only read
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return fmt.Errorf("follow console: %w", err)
	}
	for last := false; ; {
		if _, err := io.Copy(out, f); err != nil {
			return fmt.Errorf("follow console: %w", err)
		}
		if last {
			return nil
		}
		select {
		case <-over:
			last = true
		case <-clock.Real().After(followInterval):
		}
	}
}
