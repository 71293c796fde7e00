package host

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/inventory"
	"github.com/ingot-metal/ingot/internal/hwid"
)

var (
	identityBoots = flag.Int("identity-boots", 60, "how many boots of random hardware are judged")
	identitySeed  = flag.Uint64("identity-seed", 0, "the seed of the random hardware; 0 takes one of the clock")
)

// box is the hardware of a machine: a board, cards, and what its firmware shows of itself.
type box struct {
	// strong are the files of DMI that firmware has filled in, by name; the TPM's key too, which a controller adds.
	strong  map[string]string
	chassis string
	cards   []string
}

// install is a system on a disk, with what the controller knows its agent by. truth has the strong facts of the
// hardware that counts as its machine, and cards those seen last.
type install struct {
	known string
	truth map[string]string
	cards []string
}

// world is the machines of a rack and their disks.
type world struct {
	*testing.T
	*rand.Rand
	dir    string
	boxes  []*box
	disks  []*install
	serial int
}

func (w *world) next(prefix string) string {
	w.serial++
	return fmt.Sprintf("%s%04d", prefix, w.serial)
}

// mac returns a maker's address, which is unique.
func (w *world) mac() string {
	w.serial++
	return fmt.Sprintf("00:25:90:%02x:%02x:%02x", w.serial>>16&0xff, w.serial>>8&0xff, w.serial&0xff)
}

// newBoard replaces the mainboard of a box. Some firmware fills in little, or the defaults of the factory.
func (w *world) newBoard(b *box) {
	w.serial++
	all := map[string]string{"product_uuid": fmt.Sprintf("4c4c4544-0031-3510-8052-%012x", w.serial),
		"product_serial": w.next("SN"), "board_serial": w.next("MB"), "tpm": w.next("ek")}
	b.strong = map[string]string{}
	for name, value := range all {
		if w.IntN(5) > 0 {
			b.strong[name] = value
		}
	}
	if w.IntN(8) == 0 {
		clear(b.strong)
	}
}

// conditions are how a machine comes up this time.
type conditions struct {
	late        int // cards that their driver has not brought up
	unread, old bool
	functions   int
}

func (w *world) noise() conditions {
	n := conditions{functions: w.IntN(4)}
	switch w.IntN(12) {
	case 0:
		n.late = 1 + w.IntN(2)
	case 1:
		n.unread = true
	case 2:
		n.old = true
	}
	return n
}

// tree is the machine as the kernel shows it, below a new directory.
func (w *world) tree(b *box, n conditions) (root string, cards []string) {
	w.Helper()
	w.serial++
	root = filepath.Join(w.dir, fmt.Sprint(w.serial))
	write := func(name, text string) { hosttest.WriteFile(w.T, filepath.Join(root, name), text+"\n") }
	link := func(target, name string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			w.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			w.Fatal(err)
		}
	}
	write("proc/sys/kernel/random/boot_id", w.next("boot"))
	const dmi = "sys/class/dmi/id/"
	factory := map[string]string{"product_uuid": "03000200-0400-0500-0006-000700080009",
		"product_serial": "To be filled by O.E.M.", "board_serial": "Default string"}
	for name, placeholder := range factory {
		value, set := b.strong[name]
		switch {
		case n.unread && set: // a file that cannot be opened, by root neither
			write(dmi+"x", "")
			if err := unix.Mknod(filepath.Join(root, dmi, name), unix.S_IFSOCK|0o600, 0); err != nil {
				w.Fatal(err)
			}
		case set:
			write(dmi+name, value)
		default:
			write(dmi+name, placeholder)
		}
	}
	write(dmi+"chassis_serial", b.chassis)
	device := func(at, name, address string) string {
		dir := "sys/devices/pci0000:00/" + at + "/net/" + name
		write(dir+"/address", address)
		link("../..", dir+"/device")
		link("../../devices/pci0000:00/"+at+"/net/"+name, "sys/class/net/"+name)
		return dir
	}
	cards = slices.Clone(b.cards[min(n.late, len(b.cards)):])
	for i, mac := range cards {
		dir := device(fmt.Sprintf("0000:%02x:00.0", i), fmt.Sprintf("eth%d", i), mac)
		write(dir+"/type", "1")
		write(dir+"/addr_assign_type", "0")
	}
	for i := range n.functions {
		at := fmt.Sprintf("0000:80:00.%d", i)
		device(at, fmt.Sprintf("vf%d", i), w.mac())
		link("../0000:00:00.0", "sys/devices/pci0000:00/"+at+"/physfn")
		write(device(fmt.Sprintf("0000:81:00.%d", i), fmt.Sprintf("rep%d", i), w.mac())+"/phys_port_name",
			fmt.Sprintf("pf0vf%d", i))
		write(device(fmt.Sprintf("0000:82:00.%d", i), fmt.Sprintf("rand%d", i), w.mac())+"/addr_assign_type", "1")
		device(fmt.Sprintf("0000:83:00.%d/usb1", i), fmt.Sprintf("usb%d", i), w.mac())
		device(fmt.Sprintf("0000:84:00.%d", i), fmt.Sprintf("local%d", i), "02"+w.mac()[2:])
		write(device(fmt.Sprintf("0000:85:00.%d", i), fmt.Sprintf("ib%d", i),
			"00:00:10:29:fe:80:00:00:00:00:00:00:"+w.mac()+":00:01")+"/type", "32")
	}
	return root, cards
}

// shown is what the agent shows to its controller, and the truth of it.
func (w *world) shown(b *box, n conditions) (text string, strong map[string]string, cards []string) {
	w.Helper()
	root, cards := w.tree(b, n)
	h := New(Config{Root: root})
	id, err := h.Identity(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	if err := os.RemoveAll(root); err != nil {
		w.Fatal(err)
	}
	f := hwid.ParseFingerprint(id.HardwareFingerprint)
	if n.old {
		return f.V1, nil, nil
	}
	if !slices.Equal(slices.Sorted(slices.Values(cards)), f.MACs) {
		w.Fatalf("the agent shows the cards %q of %q", f.MACs, cards)
	}
	f.TPM = b.strong["tpm"]
	strong = maps.Clone(b.strong)
	if n.unread {
		strong = map[string]string{}
		if f.TPM != "" {
			strong["tpm"] = f.TPM
		}
	}
	return f.Fingerprint(), strong, cards
}

// start boots a disk in a box, and compares the judgement with the truth.
func (w *world) start(what string, d *install, b *box) {
	w.Helper()
	n := w.noise()
	text, strong, cards := w.shown(b, n)
	v := hwid.Judge(hwid.ParseFingerprint(d.known), hwid.ParseFingerprint(text))
	compared, differs, kept := 0, false, 0
	for name, value := range d.truth {
		if now, ok := strong[name]; ok {
			compared++
			differs = differs || now != value
		}
	}
	for _, mac := range cards {
		if slices.Contains(d.cards, mac) {
			kept++
		}
	}
	oldest := hwid.ParseFingerprint(d.known).Fingerprint() != d.known && d.known != ""
	switch {
	case d.known == "" || n.old != oldest:
		if v.Other() {
			w.Fatalf("%s: a first fingerprint, or one of another version, counts as other hardware: %s", what, v)
		}
	case n.old: // two of older agents, which tell nothing but that they differ
	case compared > 0 && v.Other() != differs:
		w.Fatalf("%s: other hardware is %t, and counts as %t: %s\nknown %s\nshown %s", what, differs, v.Other(), v,
			d.known, text)
	case compared == 0 && v.Other() && kept > 0:
		w.Fatalf("%s: fenced though a card is the same: %s", what, v)
	case compared == 0 && !v.Other() && kept == 0 && len(d.cards) > 0 && len(cards) > 0:
		w.Fatalf("%s: nothing is the same, and it counts as the same machine\nknown %s\nshown %s", what, d.known, text)
	}
	d.known = hwid.Known(d.known, text)
	if n.old || v.Other() || d.truth == nil || oldest {
		d.truth, d.cards = map[string]string{}, nil
	}
	maps.Copy(d.truth, strong)
	if len(cards) > 0 {
		d.cards = cards
	}
}

// step is one thing that happens in the rack.
func (w *world) step() {
	i, j := w.IntN(len(w.boxes)), w.IntN(len(w.boxes))
	a, b := w.boxes[i], w.boxes[j]
	switch w.IntN(9) {
	case 0:
		if i != j && len(a.cards) > 1 && len(b.cards) > 1 {
			a.cards[1], b.cards[1] = b.cards[1], a.cards[1]
		}
		w.start("cards moved", w.disks[i], a)
		w.start("cards moved", w.disks[j], b)
	case 1:
		if len(a.cards) > 1 {
			a.cards[len(a.cards)-1] = w.mac()
		}
		w.start("a new card", w.disks[i], a)
	case 2:
		w.disks[i] = &install{}
		w.start("reimaged", w.disks[i], a)
	case 3:
		w.newBoard(a)
		a.cards[0] = w.mac()
		w.start("a new board", w.disks[i], a)
		w.start("a new board, again", w.disks[i], a)
	case 4:
		w.disks[i], w.disks[j] = w.disks[j], w.disks[i]
		w.start("disks moved", w.disks[i], a)
		w.start("disks moved", w.disks[j], b)
	case 5:
		if a.strong["tpm"] != "" {
			a.strong["tpm"] = w.next("ek")
		}
		w.start("a new TPM", w.disks[i], a)
	case 6:
		a.chassis = w.next("CH")
		w.start("a blade in another chassis", w.disks[i], a)
	default:
		w.start("restarted", w.disks[i], a)
	}
}

// TestRandomHardware boots machines whose parts, disks and agents change at random: no machine is fenced for a weak
// fact, and none is taken for another.
func TestRandomHardware(t *testing.T) {
	seed := *identitySeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("%d steps, -identity-seed=%d", *identityBoots, seed)
	w := &world{T: t, Rand: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir()}
	for range 6 {
		b := &box{chassis: w.next("CH")}
		w.newBoard(b)
		for range 1 + w.IntN(4) {
			b.cards = append(b.cards, w.mac())
		}
		w.boxes, w.disks = append(w.boxes, b), append(w.disks, &install{})
	}
	for range *identityBoots {
		w.step()
	}
}

// TestUpgradedAgents: an older agent's fingerprint is the same hardware's, and the cards that it counted are no longer.
func TestUpgradedAgents(t *testing.T) {
	t.Parallel()
	w := &world{T: t, Rand: rand.New(rand.NewPCG(1, 1)), dir: t.TempDir()}
	b := &box{strong: map[string]string{"product_uuid": "4c4c4544-0031-3510-8052-b7c04f4e4b32"}, cards: []string{w.mac()}}
	root, _ := w.tree(b, conditions{functions: 2})
	h := New(Config{Root: root})
	older := fingerprintV1(inventory.ReadFingerprinted(root), inventory.PermanentMACs(root))
	v := hwid.Judge(hwid.ParseFingerprint(older), h.hardware())
	if v.Outcome != hwid.Same {
		t.Errorf("an upgrade of the agent is %d: %s", v.Outcome, v)
	}
}
