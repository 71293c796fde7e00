// Command guest is the userland of the machines in the tests of lab/vm. What it does is written on its state
// disk, in the file "script": one word a line, and each boot takes the next one.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/ingot-metal/ingot/agent/pid1"
)

func main() {
	if !pid1.IsInit() {
		fmt.Fprintln(os.Stderr, "guest: runs as process 1 of a test machine only")
		os.Exit(2)
	}
	if err := pid1.Run(context.Background(), slog.Default(), guest); err != nil {
		slog.Error("guest failed", "error", err)
		os.Exit(1)
	}
}

func guest(sys *pid1.System) error {
	step, err := nextStep(sys.StateDir())
	if err != nil {
		return err
	}
	if err := announce(step); err != nil {
		return err
	}
	switch step {
	case "reboot":
		return rebootWhileWriting(sys)
	case "crash":
		go panic("on purpose, in a goroutine that nobody watches")
		select {}
	case "exit":
		return nil
	case "call-home":
		return callHome(sys.StateDir())
	case "boot-next":
		return setBootNext(sys)
	}
	return waitForTerm()
}

// nextStep counts starts in a file on the state disk, so it also shows that the disk lasts.
func nextStep(dir string) (string, error) {
	path := filepath.Join(dir, "starts")
	starts, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	if err := os.WriteFile(path, append(starts, '.'), 0o600); err != nil {
		return "", err
	}
	syscall.Sync()
	script, err := os.ReadFile(filepath.Join(dir, "script"))
	if err != nil {
		return "", err
	}
	steps := strings.Fields(string(script))
	return steps[min(len(starts), len(steps)-1)], nil
}

func announce(step string) error {
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	machineID, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		return err
	}
	serial, err := os.ReadFile("/sys/class/dmi/id/product_serial")
	if err != nil {
		return err
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	bootNext, err := os.ReadFile(bootNextVariable)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	_, efiErr := os.Stat("/sys/firmware/efi/efivars/BootOrder-" + globalVariable)
	fmt.Printf("GUEST step=%s boot_id=%s machine_id=%s serial=%s uptime=%s hostname=%s efi=%t boot_next=%x end\n",
		step, word(bootID), word(machineID), word(serial), word(uptime), host, efiErr == nil, bootNext)
	return nil
}

func word(b []byte) string { return strings.Fields(string(b))[0] }

// rebootWhileWriting does not end when it is told to. It writes without fsync, keeps the file open, and writes to
// another one that is mapped, as a database might be in the middle of it.
func rebootWhileWriting(sys *pid1.System) error {
	signal.Ignore(syscall.SIGTERM)
	f, err := os.Create(filepath.Join(sys.StateDir(), "unsynced"))
	if err != nil {
		return err
	}
	if _, err := f.WriteString("kept\n"); err != nil {
		return err
	}
	page, err := mapped(filepath.Join(sys.StateDir(), "mapped"))
	if err != nil {
		return err
	}
	go func() {
		for {
			page[0]++
		}
	}()
	go func() {
		for {
			runtime.GC() // waits for every thread of this process
		}
	}()
	if err := sys.Reboot(); err != nil {
		return err
	}
	select {}
}

func mapped(path string) ([]byte, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(4096); err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

// callHome says the content of "unsynced" to the address of the host that is written in "home".
func callHome(dir string) error {
	address, err := os.ReadFile(filepath.Join(dir, "home"))
	if err != nil {
		return err
	}
	kept, err := os.ReadFile(filepath.Join(dir, "unsynced"))
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", word(address))
	if err != nil {
		return err
	}
	if _, err := conn.Write(kept); err != nil {
		return err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		return err
	}
	return waitForTerm()
}

const (
	globalVariable   = "8be4df61-93ca-11d2-aa0d-00e098032b8c" // EFI_GLOBAL_VARIABLE (UEFI 2.10, 3.3)
	bootNextVariable = "/sys/firmware/efi/efivars/BootNext-" + globalVariable
)

// setBootNext writes entry 0 with the attributes non-volatile, boot service and runtime access.
func setBootNext(sys *pid1.System) error {
	if err := os.WriteFile(bootNextVariable, []byte{7, 0, 0, 0, 0, 0}, 0o644); err != nil {
		return err
	}
	if err := sys.Reboot(); err != nil {
		return err
	}
	return waitForTerm()
}

func waitForTerm() error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	fmt.Println("GUEST was asked to end")
	return nil
}
