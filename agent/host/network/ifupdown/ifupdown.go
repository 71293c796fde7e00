// Package ifupdown configures interfaces through Debian's ifup and ifdown, by a file of our own that
// /etc/network/interfaces reads. What other files say of our interfaces is commented out there while they are ours.
package ifupdown

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	mainFile = "etc/network/interfaces"
	dir      = "etc/network/interfaces.d"
	ourFile  = dir + "/ingot"
	// stateFile has a line such as eth0=office for each interface that is up.
	stateFile = "run/network/ifstate"
	service   = "networking.service"
	// Bounds of the files, which are others'.
	maxFiles = 100
	maxDepth = 5
	maxSize  = 1 << 20
	// On a way back each round of ifup is given backTime: a lease may never come.
	backRounds = 3
	backTime   = 5 * time.Second
	backPoll   = 100 * time.Millisecond
	// freeReads in a row must find no lock: a program is started a little before it has one.
	freeReads = 2
)

// Manager is ifupdown.
type Manager struct{ *system.System }

var _ network.Manager = Manager{}

// Name is how records call it.
func (Manager) Name() string { return network.Ifupdown }

// Mode is that of our file. Others' keep theirs.
func (Manager) Mode() fs.FileMode { return 0o644 }

// Dir is where our file is.
func (Manager) Dir() string { return dir }

// State asks for the unit that brings interfaces up at boot. Before that our files need not be read by anybody. A host
// with ifupdown2, which reads the same files in another way, has no such manager.
func (m Manager) State(ctx context.Context) (network.ManagerState, error) {
	if m.program("ifup") == "" || !m.exists(mainFile) || m.exists("usr/share/ifupdown2") {
		return network.Off, nil
	}
	if up, err := m.active(); err == nil && len(up) > 0 {
		return network.Running, nil
	}
	ctx, cancel := context.WithTimeout(ctx, system.BusTime)
	defer cancel()
	state, err := m.Kernel.UnitState(ctx, service)
	switch {
	case err != nil || state == "inactive":
		return network.Off, err
	case state == "activating" || state == "deactivating":
		return network.Coming, nil
	}
	return network.Running, nil // also where it has failed: one interface is enough for that
}

func (m Manager) exists(rel string) bool {
	_, err := os.Stat(m.Path(rel))
	return err == nil
}

// program finds ifup or ifdown.
func (m Manager) program(name string) string {
	for _, in := range []string{"usr/sbin", "sbin"} {
		if m.exists(in + "/" + name) {
			return "/" + in + "/" + name
		}
	}
	return ""
}

// Has reports whether one of the interfaces is up by ifup.
func (m Manager) Has(_ context.Context, names []string) bool {
	up, err := m.active()
	return err == nil && slices.ContainsFunc(names, func(n string) bool { return up[n] != "" })
}

// Active reads which interfaces are up, and by which stanza, once none is being brought up or down. One that waits for
// its lease is waited for a while only.
func (m Manager) Active(ctx context.Context) (map[string]string, error) {
	patience := clock.Real().After(backTime)
	for free := 0; free < freeReads; {
		if free++; m.worksOn() {
			free = 0
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-patience:
			free = freeReads
		case <-clock.Real().After(backPoll):
		}
	}
	return m.active()
}

// worksOn reports whether an ifup or ifdown works on an interface. It holds a lock then (lockf(3)).
func (m Manager) worksOn() bool {
	files, _ := filepath.Glob(m.Path(stateFile + ".*")) // the pattern is ours, and good
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue // it has gone
		}
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		err = unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock)
		_ = f.Close() // it was only looked at
		if err == nil && lock.Type != unix.F_UNLCK {
			return true
		}
	}
	return false
}

func (m Manager) active() (map[string]string, error) {
	b, err := os.ReadFile(m.Path(stateFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read which interfaces are up: %w", err)
	}
	up := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if name, logical, ok := strings.Cut(strings.TrimSpace(lines.Text()), "="); ok {
			up[name] = logical
		}
	}
	return up, nil
}

// Files reads the main file and all that it reads.
func (m Manager) Files() (map[string]string, error) {
	files := map[string]string{}
	if err := m.readAll(files, "/"+mainFile, 0); err != nil {
		return nil, err
	}
	ours, err := network.ReadFiles(m.System, ourFile)
	if err != nil {
		return nil, err
	}
	if text, ok := ours[ourFile]; ok {
		files[ourFile] = text
	}
	return files, nil
}

// readAll reads a file, and those that it names.
func (m Manager) readAll(files map[string]string, name string, depth int) error {
	rel := strings.TrimPrefix(path.Clean(name), "/")
	if _, known := files[rel]; known || rel == ourFile {
		return nil
	}
	fi, err := os.Stat(m.Path(rel))
	if errors.Is(err, fs.ErrNotExist) || err == nil && fi.IsDir() {
		return nil
	}
	if err == nil && (fi.Size() > maxSize || len(files) >= maxFiles || depth > maxDepth) {
		err = errors.New("it is too long, or files read each other too deep")
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	b, err := os.ReadFile(m.Path(rel))
	if err != nil {
		return fmt.Errorf("read network file: %w", err)
	}
	files[rel] = string(b)
	patterns, directories := sources(name, string(b))
	for _, d := range directories {
		patterns = append(patterns, d+"/*")
	}
	for k, p := range patterns {
		found, _ := filepath.Glob(m.Path(p)) // a bad pattern names nothing
		slices.Sort(found)
		for _, f := range found {
			if k >= len(patterns)-len(directories) && !sourcedName.MatchString(filepath.Base(f)) {
				continue
			}
			inRoot, err := filepath.Rel(m.Path(""), f)
			if err != nil {
				return fmt.Errorf("read %s: %w", f, err)
			}
			if err := m.readAll(files, "/"+inRoot, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// Ours reports whether it is our file.
func (Manager) Ours(path string) bool { return path == ourFile }

// Render writes our file, and takes what others say of our interfaces out of force.
func (m Manager) Render(c network.Config, cards network.Cards) (map[string]string, error) {
	names := map[string]bool{}
	for _, l := range c.Links(cards) {
		names[l.Name] = true
	}
	return m.with(render(c, cards), names)
}

// Before returns our file as it was saved. Those of others stay as they are now, but without our lines.
func (m Manager) Before(saved map[string]string) (map[string]string, error) {
	if ours, had := saved[ourFile]; had {
		return m.with(ours, namesIn(ours))
	}
	return m.othersWithout(nil)
}

// with returns all files where ours has this text.
func (m Manager) with(ours string, names map[string]bool) (map[string]string, error) {
	files, err := m.othersWithout(names)
	if err != nil {
		return nil, err
	}
	isRead := false
	for f, text := range files {
		isRead = isRead || reads("/"+f, text, "/"+ourFile)
	}
	if !isRead {
		files[mainFile] = added("source /"+ourFile) + files[mainFile]
	}
	files[ourFile] = ours
	return files, nil
}

// othersWithout reads the files of others with what they say of the named interfaces out of force.
func (m Manager) othersWithout(names map[string]bool) (map[string]string, error) {
	files, err := m.Files()
	if err != nil {
		return nil, err
	}
	delete(files, ourFile)
	for f, text := range files {
		files[f] = takeOver(text, names)
	}
	return files, nil
}

// Release takes the interfaces down, by the files that brought them up. What ifdown could not undo is found by a
// comparison with the kernel.
func (m Manager) Release(ctx context.Context, names []string) error {
	up, err := m.Active(ctx)
	if err != nil {
		return err
	}
	var down []string
	for _, n := range names {
		if up[n] != "" {
			down = append(down, n)
		}
	}
	if len(down) == 0 {
		return nil
	}
	err = m.Kernel.RunDetached(ctx, "ifdown", true, append([]string{m.program("ifdown"), "--force"}, down...)...)
	if err != nil && ctx.Err() == nil {
		m.Log.Warn("ifdown did not undo everything", "interfaces", down, "error", err)
	}
	return ctx.Err()
}

// Read does nothing: each ifup reads the files.
func (Manager) Read(context.Context) error { return nil }

// Load brings the interfaces up. Those with DHCP are not waited for: a lease may never come. On a way back nothing
// fails because ifup does: the kernel is compared with what was there.
func (m Manager) Load(ctx context.Context, l network.Load) error {
	if l.Config == nil {
		return m.back(ctx, l.Active)
	}
	var static, leased, all []string
	for _, i := range l.Config.Interfaces {
		name := l.Cards.NameOf(i)
		if i.DHCP4 || i.DHCP6 {
			leased = append(leased, name)
		} else {
			static = append(static, name)
		}
	}
	for _, link := range l.Links {
		all = append(all, link.Name)
	}
	// ifup adds no address that is there already.
	if err := network.ClearAddresses(append(all, l.Dropped...)); err != nil {
		return err
	}
	if len(static) > 0 {
		if err := m.Kernel.RunDetached(ctx, "ifup", true, append([]string{m.program("ifup")}, static...)...); err != nil {
			return err
		}
	}
	return m.up(ctx, append(leased, l.Dropped...))
}

// up begins to bring interfaces up, each by itself.
func (m Manager) up(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := m.Kernel.RunDetached(ctx, "ifup", false, m.program("ifup"), name); err != nil {
			return err
		}
	}
	return nil
}

// back brings up the interfaces that were up. A VLAN may find its bond in the second round only, and a foreign ifup may
// have blocked the first round. An interface that waits for a lease goes on by itself.
func (m Manager) back(ctx context.Context, active map[string]string) error {
	waiting := map[string]bool{}
	for range backRounds {
		up, err := m.Active(ctx)
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(
			slices.Sorted(maps.Keys(active)),
			func(n string) bool { return up[n] != "" || waiting[n] },
		)
		if len(missing) == 0 {
			return nil
		}
		if err := network.ClearAddresses(missing); err != nil {
			return err
		}
		for _, name := range missing {
			once, cancel := context.WithTimeout(ctx, backTime)
			err := m.Kernel.RunDetached(once, "ifup", true, m.program("ifup"), name)
			waiting[name] = once.Err() != nil
			cancel()
			if err != nil {
				m.Log.Warn("ifup did not bring an interface back", "interface", name, "error", err)
			}
		}
	}
	return ctx.Err()
}

// Busy knows nothing: ifup has ended, or waits for a lease.
func (Manager) Busy(context.Context, []string) map[string]string { return nil }

// Nudge does nothing: a second ifup changes nothing.
func (Manager) Nudge(context.Context, []string) error { return nil }

// TellsResolver: its hooks tell systemd-resolved or resolvconf the servers, where one of them is there.
func (m Manager) TellsResolver(ctx context.Context) bool {
	return m.HasOwner(ctx, network.Resolved) && m.exists("etc/network/if-up.d/resolved") || m.exists("sbin/resolvconf")
}
