package pid1

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/imagelayout"
)

// hardwareRounds bounds the search for devices that appear when the driver of what they hang on is inserted.
const hardwareRounds = 4

// driver is a module for some devices.
type driver struct {
	// paths are the modules to insert, in order.
	paths []string
	// aliases are patterns over what devices say of themselves in their file modalias, with the wildcards of
	// path.Match.
	aliases []string
}

// loadModules inserts the modules of ModuleList, and those of HardwareList that the machine has a device for. One that
// can't be inserted is reported on the console; the machine may do without it.
func loadModules(log *slog.Logger) error {
	text, err := os.ReadFile(imagelayout.ModuleList)
	if err != nil {
		return fmt.Errorf("read module list: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		p, parameters, _ := strings.Cut(strings.TrimSpace(line), " ")
		insert(log, p, parameters)
	}
	text, err = os.ReadFile(imagelayout.HardwareList)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read list of drivers: %w", err)
	}
	drivers := parseDrivers(string(text))
	for range hardwareRounds {
		var found []driver
		found, drivers = match(drivers, deviceAliases("/sys"))
		if len(found) == 0 {
			return nil
		}
		for _, d := range found {
			for _, p := range d.paths {
				insert(log, p, "")
			}
		}
	}
	return nil
}

// LoadModule inserts the module with an alias, such as "fs-xfs", and what it depends on, from HardwareList. One that is
// built into the kernel, or was loaded before, needs nothing.
func LoadModule(log *slog.Logger, alias string) error {
	text, err := os.ReadFile(imagelayout.HardwareList)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read list of drivers: %w", err)
	}
	found, _ := match(parseDrivers(string(text)), []string{alias})
	for _, d := range found {
		for _, p := range d.paths {
			insert(log, p, "")
		}
	}
	return nil
}

func insert(log *slog.Logger, p, parameters string) {
	if err := insertModule(p, parameters); err != nil && !harmless(err) {
		log.Warn("module not inserted", "path", p, "error", err)
	}
}

// parseDrivers reads HardwareList: a line of paths for each driver, followed by its aliases, indented.
func parseDrivers(text string) []driver {
	var all []driver
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case line[0] != '\t':
			all = append(all, driver{paths: fields})
		case len(all) > 0:
			last := &all[len(all)-1]
			last.aliases = append(last.aliases, fields[0])
		}
	}
	return all
}

// match parts the drivers into those for one of the devices and the others.
func match(drivers []driver, devices []string) (found, rest []driver) {
	for _, d := range drivers {
		if d.fits(devices) {
			found = append(found, d)
		} else {
			rest = append(rest, d)
		}
	}
	return found, rest
}

func (d driver) fits(devices []string) bool {
	for _, alias := range d.aliases {
		// Most differ before the first wildcard, and path.Match is slow.
		start, _, _ := strings.Cut(alias, "*")
		plain := !strings.ContainsAny(start, "?[\\")
		for _, device := range devices {
			if plain && !strings.HasPrefix(device, start) {
				continue
			}
			// A pattern that is malformed matches nothing.
			if ok, err := path.Match(alias, device); ok && err == nil {
				return true
			}
		}
	}
	return false
}

// deviceAliases returns the modalias of every device on a bus.
func deviceAliases(sys string) []string {
	// The pattern is constant and well formed, which is all that Glob complains about.
	files, _ := filepath.Glob(filepath.Join(sys, "bus", "*", "devices", "*", "modalias"))
	var all []string
	for _, f := range files {
		// A device may have gone since.
		if text, err := os.ReadFile(f); err == nil {
			all = append(all, strings.TrimSpace(string(text)))
		}
	}
	return all
}

func insertModule(p, parameters string) error {
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	// Opened for reading only: closing it loses nothing.
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), parameters, 0)
}

// harmless errors of finit_module(2): no such device, as for efivarfs under a BIOS, or loaded already.
func harmless(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EEXIST)
}
