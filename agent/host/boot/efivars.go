package boot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// efiGlobal is EFI_GLOBAL_VARIABLE (UEFI specification 2.10, section 3.3), the suffix of the files in efivarfs.
const efiGlobal = "-8be4df61-93ca-11d2-aa0d-00e098032b8c"

// efiAttributes: non-volatile, and accessible to boot services and at run time.
const efiAttributes = 7

// fsImmutable is FS_IMMUTABLE_FL of linux/fs.h.
const fsImmutable = 0x10

var bootVariable = regexp.MustCompile(`^Boot([0-9A-Fa-f]{4})` + efiGlobal + `$`)

// BootNext reads the variable and the entry that it names.
func (b *Control) BootNext(ctx context.Context) (NextState, error) {
	if err := ctx.Err(); err != nil {
		return NextState{}, err
	}
	if err := b.needEFI(); err != nil {
		return NextState{}, err
	}
	raw, err := b.readVariable("BootNext")
	if errors.Is(err, fs.ErrNotExist) {
		return NextState{}, nil
	}
	if err != nil {
		return NextState{}, err
	}
	numbers, err := parseBootOrder(raw)
	if err != nil || len(numbers) != 1 {
		return NextState{}, fmt.Errorf("read BootNext of %d bytes: %w", len(raw), errEFI)
	}
	return b.describe(numbers[0]), nil
}

// describe returns the state of an entry; one that cannot be read has its name only.
func (b *Control) describe(number uint16) NextState {
	s := NextState{Set: true, Entry: entryName(number)}
	raw, err := b.readVariable(s.Entry)
	if err != nil {
		return s
	}
	o, err := parseLoadOption(raw)
	if err != nil {
		return s
	}
	s.Description, s.Target = o.description, o.target()
	return s
}

// SetBootNext finds the entry by its device path, writes the variable and reads it back.
func (b *Control) SetBootNext(ctx context.Context, _ effect.Cause, t Target) (NextChange, error) {
	old, err := b.BootNext(ctx)
	if err != nil {
		return NextChange{}, err
	}
	if err := validateTarget(t); err != nil {
		return NextChange{}, err
	}
	entries, order, err := b.bootEntries()
	if err != nil {
		return NextChange{}, err
	}
	entry, ok := findEntry(entries, order, t)
	if !ok {
		return NextChange{}, effect.Refuse(
			effect.ErrUnsupported,
			effect.ReasonNoBootEntry,
			"no boot entry of %d is %s over IPv4 %s",
			len(entries),
			t.Method,
			t.MAC,
		)
	}
	if old.Entry != entry.name() {
		if err := b.writeVariable("BootNext", binary.LittleEndian.AppendUint16(nil, entry.number)); err != nil {
			return NextChange{}, err
		}
	}
	now, err := b.BootNext(ctx)
	if err == nil && now.Entry != entry.name() {
		err = fmt.Errorf("set BootNext to %s: firmware holds %q: %w", entry.name(), now.Entry, effect.ErrReadBack)
	}
	return NextChange{Old: old, New: now}, err
}

func validateTarget(t Target) error {
	if t.Method != PXE && t.Method != HTTP {
		return effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "boot method %q, want pxe or http", t.Method)
	}
	if t.MAC == "" {
		return nil
	}
	if _, err := hwid.MAC(t.MAC); err != nil {
		return effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "boot from MAC %q: %v", t.MAC, err)
	}
	return nil
}

// ClearBootNext removes the variable and makes sure that it is gone.
func (b *Control) ClearBootNext(ctx context.Context, _ effect.Cause) error {
	now, err := b.BootNext(ctx)
	if err != nil || !now.Set {
		return err
	}
	path := b.variablePath("BootNext")
	if err := mutable(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return varErr("remove BootNext", err)
	}
	now, err = b.BootNext(ctx)
	if err == nil && now.Set {
		err = fmt.Errorf("remove BootNext: firmware still holds %s: %w", now.Entry, effect.ErrReadBack)
	}
	return err
}

// needEFI returns a refusal with the reason where there are no variables.
func (b *Control) needEFI() error {
	if _, err := os.Stat(filepath.Dir(b.EFIVars)); err != nil {
		return effect.Refuse(effect.ErrUnsupported, effect.ReasonNoUEFI, "the machine was not booted by UEFI firmware")
	}
	files, err := os.ReadDir(b.EFIVars)
	if err != nil || len(files) == 0 {
		return effect.Refuse(effect.ErrUnsupported, effect.ReasonNoEFIVars, "efivarfs is not mounted at %s", b.EFIVars)
	}
	return nil
}

// bootEntries reads every Boot#### variable that makes sense, and BootOrder, which may be missing.
func (b *Control) bootEntries() (entries []bootEntry, order []uint16, err error) {
	files, err := os.ReadDir(b.EFIVars)
	if err != nil {
		return nil, nil, fmt.Errorf("list EFI variables: %w", err)
	}
	for _, f := range files {
		m := bootVariable.FindStringSubmatch(f.Name())
		if m == nil {
			continue
		}
		if e, err := b.readEntry(m[1]); err == nil {
			entries = append(entries, e) // firmware ships broken entries; the others still count
		}
	}
	raw, err := b.readVariable("BootOrder")
	if errors.Is(err, fs.ErrNotExist) {
		return entries, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	order, err = parseBootOrder(raw)
	return entries, order, err
}

func (b *Control) readEntry(digits string) (bootEntry, error) {
	n, err := strconv.ParseUint(digits, 16, 16)
	if err != nil {
		return bootEntry{}, fmt.Errorf("read number of Boot%s: %w", digits, err)
	}
	raw, err := b.readVariable("Boot" + digits)
	if err != nil {
		return bootEntry{}, err
	}
	o, err := parseLoadOption(raw)
	return bootEntry{number: uint16(n), option: o}, err
}

func (b *Control) variablePath(name string) string { return filepath.Join(b.EFIVars, name+efiGlobal) }

// readVariable returns the content without the four bytes of attributes that efivarfs puts before it (kernel,
// Documentation/filesystems/efivarfs.rst).
func (b *Control) readVariable(name string) ([]byte, error) {
	raw, err := os.ReadFile(b.variablePath(name))
	if err != nil {
		return nil, fmt.Errorf("read EFI variable %s: %w", name, err)
	}
	if len(raw) < 4 {
		return nil, fmt.Errorf("read EFI variable %s of %d bytes: %w", name, len(raw), errEFI)
	}
	return raw[4:], nil
}

// writeVariable writes attributes and content in one write(2), as efivarfs wants.
func (b *Control) writeVariable(name string, content []byte) error {
	path := b.variablePath(name)
	if err := mutable(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return varErr("open "+name, err)
	}
	_, err = f.Write(append(binary.LittleEndian.AppendUint32(nil, efiAttributes), content...))
	if err := errors.Join(err, f.Close()); err != nil {
		return varErr("write "+name, err)
	}
	return nil
}

// mutable takes away the immutable flag that the kernel sets on variables which it doesn't know to be harmless. A file
// that isn't there, and a file system without flags, have none.
func mutable(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open EFI variable: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read flags of EFI variable: %w", err)
	}
	if flags&fsImmutable == 0 {
		return nil
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags&^fsImmutable)); err != nil {
		return varErr("make EFI variable mutable", err)
	}
	return nil
}

func varErr(doing string, err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return effect.Refuse(effect.ErrUnsupported, effect.ReasonNoPrivilege, "%s: %v", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
