package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/network"
)

func labUp() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use: "up", Short: "Start a controller, a site agent and machines with BMCs and empty disks", Args: cobra.NoArgs,
		Long: `Start a small data centre: a controller with a database of its own, a site agent on a provisioning segment, and
machines in QEMU that are powered off, have empty disks, and each a BMC that speaks Redfish and IPMI. It stays in the
background until "ingot-lab down". Only the controller is on this host's network, on loopback; the rest is in a network
namespace. Root is not needed where the kernel lets users make user namespaces.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.up(cmd.Context(), cmd.OutOrStdout()) },
	}
	o.bind(cmd)
	return cmd
}

// up starts serve as a process of its own and shows its progress until it is ready.
func (o *upOptions) up(ctx context.Context, out io.Writer) error {
	if _, _, _, err := o.mix(0); err != nil {
		return err
	}
	if answer, conn, err := metal.Ask(ctx, o.dir, metal.Request{Do: "status"}); err == nil {
		conn.Close()
		fmt.Fprintf(out, "The lab is up already. To start afresh: %s down\n", self())
		return whatNext(out, answer.Status)
	}
	if err := o.freshDir(); err != nil {
		return err
	}
	began := time.Now()
	if err := o.spawn(ctx, out); err != nil {
		return errors.Join(err, fmt.Errorf("see %s", filepath.Join(o.dir, "logs")))
	}
	answer, conn, err := metal.Ask(ctx, o.dir, metal.Request{Do: "status"})
	if err != nil {
		return err
	}
	conn.Close()
	fmt.Fprintf(out, "Up in %.1f s.\n", time.Since(began).Seconds())
	return whatNext(out, answer.Status)
}

// freshDir refuses a directory of another user, or with files that are not a lab's.
func (o *upOptions) freshDir() error {
	info, err := os.Lstat(o.dir)
	if err == nil {
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !info.IsDir() || !ok || int(stat.Uid) != os.Getuid() {
			return fmt.Errorf("%s is not a directory of this user", o.dir)
		}
		if err := removeLab(o.dir); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(o.dir, "logs"), 0o711)
}

// removeLab removes a directory only if it is empty or a lab's.
func removeLab(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "logs")); len(entries) > 0 && err != nil {
		return fmt.Errorf("%s is not empty, and not a lab's", dir)
	}
	return os.RemoveAll(dir)
}

func (o *upOptions) spawn(ctx context.Context, out io.Writer) error {
	log, err := os.OpenFile(filepath.Join(o.dir, "logs", "lab.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own copy
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close() // only read
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, append([]string{"serve"}, o.args()...)...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{write}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives the terminal
	if err := cmd.Start(); err != nil {
		return errors.Join(err, write.Close())
	}
	if err := write.Close(); err != nil {
		return err
	}
	// An interrupted start leaves nothing behind.
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	last := ""
	for lines := bufio.NewScanner(read); lines.Scan(); {
		if last = lines.Text(); last == ready {
			return cmd.Process.Release()
		}
		fmt.Fprintln(out, last)
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(fmt.Errorf("the lab does not start: %s", last), err)
}

// ready is the last line that serve prints.
const ready = "ready"

func whatNext(out io.Writer, s *metal.Status) error {
	if s.Frontpage == "" {
		_, err := fmt.Fprintf(out, "\nThe machines: %[1]s list\nThe end: %[1]s down\n", self())
		return err
	}
	fmt.Fprintf(out, "\nIn this shell:\n\n    eval \"$(%s env)\"\n    export PATH=%s:$PATH\n\n", self(),
		filepath.Dir(self()))
	if len(s.Machines) == 0 {
		return nil
	}
	m := s.Machines[0]
	_, err := fmt.Fprintf(out, `Install %[2]s, which is powered off and has an empty disk:

    ingot enter-maintenance %[2]s
    ingot reimage %[2]s --image %[3]s

Meanwhile, in another shell:

    %[1]s console %[2]s
    %[1]s list
    %[1]s exec -- tcpdump -n -i rack0

The end: %[1]s down
`, self(), m.Name, metal.TinyRef)
	return err
}

// self is how this program was called.
func self() string {
	if strings.Contains(os.Args[0], "/") {
		return os.Args[0]
	}
	return "ingot-lab"
}

func labCheck() *cobra.Command {
	o := upOptions{bmc: mixed}
	cmd := &cobra.Command{
		Use: "check", Short: "Say whether this user can put up a lab on this host", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, _, _, first := o.mix(0)
			_, _, _, second := o.mix(1)
			if err := cmp.Or(first, second, network.BecomeRoot()); err != nil {
				return err
			}
			ns, err := network.New()
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "yes")
			return ns.Close()
		},
	}
	cmd.Flags().StringVar(&o.firmware, "firmware", mixed, firmwareHelp)
	return cmd
}

const downLimit = 30 * time.Second

func labDown() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "down", Short: "End the lab and remove its directory", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, conn, err := metal.Ask(cmd.Context(), dir, metal.Request{Do: "down"})
			if err != nil {
				if _, statErr := os.Stat(dir); errors.Is(statErr, os.ErrNotExist) {
					fmt.Fprintln(cmd.OutOrStdout(), "The lab is not up.")
					return nil
				}
			} else if err := errors.Join(conn.Close(), awaitGone(cmd.Context(), dir)); err != nil {
				return err
			}
			if err := removeLab(dir); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "The lab is gone.")
			return nil
		},
	}
	bindDir(cmd, &dir)
	return cmd
}

// awaitGone returns when the lab has removed its last file, the one that marks it as running.
func awaitGone(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, downLimit)
	defer cancel()
	for {
		if _, err := os.Stat(filepath.Join(dir, runningFile)); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of the lab: %w; see %s", ctx.Err(), filepath.Join(dir, "logs", "lab.log"))
		case <-clock.Real().After(followInterval):
		}
	}
}
