package localpg

import (
	"errors"
	"os/user"
	"testing"
)

func TestChoose(t *testing.T) {
	all := []installation{{"/14", 14}, {"/13", 13}, {"/9", 9}, {"/16", 16}, {"/15", 15}}
	for want, dir := range map[int]string{0: "/16", 13: "/13", 14: "/14", 15: "/15"} {
		if got, ok := choose(all, want); !ok || got.dir != dir {
			t.Errorf("want %d: %v %v", want, got, ok)
		}
	}
	if got, ok := choose(all, 12); ok {
		t.Errorf("a missing version gave %v", got)
	}
	if got, ok := choose([]installation{{"/9", 9}}, 0); ok {
		t.Errorf("a version that is too old gave %v", got)
	}
}

func TestMajorOf(t *testing.T) {
	for s, want := range map[string]int{
		"postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)": 15, "postgres (PostgreSQL) 9.6.24": 9,
		"postgres (PostgreSQL) 17beta1": 17,
	} {
		if got, err := majorOf(s); err != nil || got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	if _, err := majorOf("MySQL 8"); err == nil {
		t.Error("MySQL passed")
	}
}

func TestParsePidFile(t *testing.T) {
	ready := "4711\n/data\n1700000000\n5432\n/run\n\n  123 456\nready   \n"
	pm, err := parsePidFile([]byte(ready))
	if err != nil || pm.pid != 4711 || pm.socketDir != "/run" || pm.stopping {
		t.Errorf("%+v, %v", pm, err)
	}
	if pm, err = parsePidFile([]byte("4711\n/data\n")); err != nil || pm.socketDir != "" {
		t.Errorf("a young file: %+v, %v", pm, err)
	}
	if pm, err = parsePidFile([]byte("4711\n/data\n0\n5432\n/run\n\n1 2\nstopping\n")); err != nil || !pm.stopping {
		t.Errorf("a stopping one: %+v, %v", pm, err)
	}
	for _, bad := range []string{"", "x", "-1\n", "0", "1"} {
		if _, err := parsePidFile([]byte(bad)); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

func TestIsZombie(t *testing.T) {
	for stat, want := range map[string]bool{
		"7 (postgres) S 1 7": false, "7 (a) Z b) R 1": false, "7 (postgres) Z 1 7": true, "": true, "7 (x)": true,
	} {
		if got := isZombie([]byte(stat)); got != want {
			t.Errorf("%q: %v", stat, got)
		}
	}
}

func TestOwner(t *testing.T) {
	lookup := func(known ...string) func(string) (*user.User, error) {
		return func(name string) (*user.User, error) {
			for _, k := range known {
				if k == name {
					return &user.User{Username: name, Uid: "101", Gid: "104"}, nil
				}
			}
			return nil, user.UnknownUserError(name)
		}
	}
	if o, err := ownerFor(0, 0, lookup("ingot", "postgres")); err != nil || o.name != "postgres" || !o.switches ||
		o.uid != 101 {
		t.Errorf("root with the package's user: %+v, %v", o, err)
	}
	if o, err := ownerFor(0, 0, lookup("ingot")); err != nil || o.name != "ingot" {
		t.Errorf("root without it: %+v, %v", o, err)
	}
	if _, err := ownerFor(0, 0, lookup()); err == nil {
		t.Error("root with nobody to be")
	}
	if o, err := ownerFor(1000, 1000, lookup("postgres")); err != nil || o.switches || o.uid != 1000 {
		t.Errorf("a user: %+v, %v", o, err)
	}
	broken := func(string) (*user.User, error) { return nil, errors.New("no passwd") }
	if _, err := ownerFor(0, 0, broken); err == nil {
		t.Error("a broken lookup passed")
	}
}
