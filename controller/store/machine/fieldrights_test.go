package machine_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/membership"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/node"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/task"
)

// as is the context of a caller with roles.
func as(ctx context.Context, grants ...access.Grant) context.Context {
	return call.WithCaller(ctx, access.Caller{Name: "eve", Scope: access.ScopeRead, Grants: grants})
}

// identity makes calls to the store, and remembers where each piece of hardware was when it came.
type identity struct {
	t     *testing.T
	s     *store.Store
	draw  *rand.Rand
	roles []access.Grant
	// machine is the record of a MAC address, fields those that the hardware had before the first call.
	machine map[string]string
	fields  map[string]membership.Fields
}

func (e *identity) among(words ...string) string { return words[e.draw.IntN(len(words))] }

func (e *identity) drawn(mac string) *baremetalv1.Machine {
	m := &baremetalv1.Machine{MachineId: ids.New(ids.Machine), Labels: map[string]string{}, Spec: &baremetalv1.MachineSpec{
		Site: e.among(
			"x",
			"y",
		),
		Group:        e.among("", "proven", "loose"),
		Rack:         e.among("", "", "", "a", "b"),
		MacAddresses: []string{mac},
	}}
	for _, key := range []string{"team", "rack", "free"} {
		if e.draw.IntN(2) == 0 {
			m.Labels[key] = e.among("a", "b")
		}
	}
	return m
}

// context is that of the identity, or of a token that it has made: an operator's, of fewer machines.
func (e *identity) context() context.Context {
	if e.draw.IntN(3) > 0 {
		return as(e.t.Context(), e.roles...)
	}
	var narrow []access.Grant
	for _, g := range e.roles {
		if g.Selection != "" {
			g.Selection += ", "
		}
		if g.Role == access.Admin {
			g.Role = access.Operator
		}
		g.Selection += e.among("provider=agent", "group!=g")
		narrow = append(narrow, g)
	}
	return as(e.t.Context(), narrow...)
}

// call makes one write, and reports whether it was refused.
func (e *identity) call() (refused bool) {
	mac := fmt.Sprintf("52:54:00:00:00:%02d", e.draw.IntN(6))
	ctx, want, now := e.context(), e.drawn(mac), storetest.Now()
	id, known := e.machine[mac]
	var err error
	switch {
	case !known:
		if _, err = e.s.Machines.Register(ctx, want, "eve", now); err == nil {
			e.machine[mac] = want.GetMachineId()
			if _, had := e.fields[mac]; !had {
				e.fields[mac] = machinestore.FieldsOf(want)
			}
		}
	case e.draw.IntN(6) == 0:
		_, err = e.s.Machines.Update(ctx, &baremetalv1.Machine{MachineId: id}, "eve", now,
			pgtx.Mask([]string{"spec.mac_addresses"}))
		if err == nil { // the hardware has no record, until another one takes its address
			delete(e.machine, mac)
		}
	case e.draw.IntN(5) == 0:
		if _, err = e.s.Nodes.Delete(e.t.Context(), id, "eve", false, now); err == nil {
			delete(e.machine, mac)
		}
	case e.draw.IntN(4) == 0:
		_, err = e.s.Nodes.UpdateNode(ctx, id, node.NodeUpdate{Group: &want.Spec.Group}, "eve", now)
	case e.draw.IntN(2) == 0:
		want.MachineId = id
		_, err = e.s.Machines.Register(ctx, want, "eve", now)
	default:
		want.MachineId = id
		mask := e.among("*", "labels", "labels.rack", "spec.rack", "spec.site", "spec.group", "spec")
		_, err = e.s.Machines.Update(ctx, want, "eve", now, pgtx.Mask([]string{mask}))
	}
	if err != nil && failure.From(err).Kind != failure.KindDenied {
		e.t.Fatal(err)
	}
	return err != nil
}

// No calls of one identity change its rights, a budget or an identity level of hardware that it is no admin of.
func TestNoCallsChangeOwnRights(t *testing.T) {
	s := storetest.New(t)
	uses := []membership.Use{
		{Kind: membership.Budget, Key: "rack"},
		{Kind: membership.IdentityLevel, Key: "group", Value: "proven"},
	}
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "racks", Domain: "label:rack", AtOnce: 1})
	if err := s.Identities.RequireIdentity(t.Context(), "", "proven", "tpm", "", "admin", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	changed, refused := 0, 0
	for seed, roles := range [][]access.Grant{
		{{Role: access.Operator}, {Role: access.Admin, Selection: "labels.team=a"}},
		{{Role: access.Operator, Selection: "site=x"}, {Role: access.Admin, Selection: "labels.team!=b"}},
		{{Role: access.Operator, Selection: "site=x"}, {Role: access.Viewer}},
		{{Role: access.Operator}},
	} {
		e := &identity{t: t, s: s, draw: rand.New(rand.NewPCG(uint64(seed), 0)), roles: roles,
			machine: map[string]string{}, fields: map[string]membership.Fields{}}
		for i := range 4 {
			mac := fmt.Sprintf("52:54:00:00:00:%02d", i)
			m, err := s.Machines.Register(t.Context(), e.drawn(mac), "admin", storetest.Now())
			if err != nil {
				t.Fatal(err)
			}
			e.machine[mac], e.fields[mac] = m.GetMachineId(), machinestore.FieldsOf(m)
		}
		for range 160 {
			if e.call() {
				refused++
			} else {
				changed++
			}
		}
		c, _ := call.Caller(as(t.Context(), roles...))
		caller, err := membership.WriterOf(c)
		if err != nil {
			t.Fatal(err)
		}
		for mac, id := range e.machine {
			first := e.fields[mac]
			now := machinestore.FieldsOf(storetest.Machine(t, s, id))
			if caller.Roles.LevelAt(first) >= membership.Admin {
				continue
			}
			if caller.Roles.LevelAt(first) != caller.Roles.LevelAt(now) {
				t.Errorf("identity %d: its rights on %s went from %d to %d", seed, mac, caller.Roles.LevelAt(first),
					caller.Roles.LevelAt(now))
			}
			for _, u := range uses {
				if place(u, first) != place(u, now) {
					t.Errorf("identity %d: %s of %s: %v became %v", seed, u.Kind, mac, first, now)
				}
			}
		}
		for _, id := range e.machine { // the next identity starts with hardware of its own
			if _, err := s.Nodes.Delete(t.Context(), id, "admin", false, storetest.Now()); err != nil {
				t.Fatal(err)
			}
		}
		forget(t, s)
	}
	if changed < 100 || refused < 100 {
		t.Errorf("%d calls changed something and %d were refused: the test shows nothing", changed, refused)
	}
}

// place names where a machine stands for a use that divides machines by a key. A budget counts both names of a rack.
func place(u membership.Use, f membership.Fields) string {
	value, _ := f.Value(u.Key)
	switch {
	case u.Value != "":
		return fmt.Sprint(value == u.Value)
	case u.Key == "rack":
		names := []string{cmp.Or(f.Labels["rack"], f.Spec["rack"]), cmp.Or(f.Spec["rack"], f.Labels["rack"])}
		slices.Sort(names)
		return strings.Join(slices.Compact(names), " and ")
	}
	return value
}

// forget removes the last records of MAC addresses, as if their hardware had never been known.
func forget(t *testing.T, s *store.Store) {
	t.Helper()
	if err := storetest.ExecSQL(t, s, "DELETE FROM released_macs"); err != nil {
		t.Fatal(err)
	}
}

// waiters counts the transactions that wait for the lock of uses and writers.
func waiters(t *testing.T, s *store.Store) int {
	return storetest.Count(t, s, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
}

// A write of a field waits for a new use of the field that is not committed yet, and is then refused.
func TestAWriteWaitsForAnUncommittedUse(t *testing.T) {
	s := storetest.New(t)
	m := &baremetalv1.Machine{MachineId: "m-1", Labels: map[string]string{"rack": "old"}}
	if _, err := s.Machines.Register(t.Context(), m, "admin", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	err := s.DB.InTx(t.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
		_, err := q.SetBudget(
			t.Context(),
			dbsqlc.SetBudgetParams{Name: "b", Harm: "DESTROYS", Domain: "label:rack", AtOnce: 1,
				Now: storetest.Now()},
		)
		if err != nil {
			return err
		}
		task.Background("a relabel", func() {
			_, err := s.Machines.Update(call.WithCaller(t.Context(), access.Caller{Name: "op", Scope: access.ScopeOperate}),
				&baremetalv1.Machine{MachineId: "m-1", Labels: map[string]string{"rack": "new"}}, "op", storetest.Now())
			done <- err
		})
		storetest.Eventually(t, func() bool { return waiters(t, s) > 0 }, "the relabel does not wait")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	storetest.WantReason(t, <-done, "FIELD_IN_USE")
}

// A new use of a field waits for writes of fields that are under way. Later writes are refused.
func TestANewUseWaitsForWrites(t *testing.T) {
	s := storetest.New(t)
	operator := call.WithCaller(t.Context(), access.Caller{Name: "op", Scope: access.ScopeOperate})
	number := 0
	for name, use := range map[string]func(ctx context.Context) error{
		"role": func(ctx context.Context) error {
			_, err := s.Access.CreateRoleBinding(ctx, access.RoleBinding{ID: "rb-1", Role: access.Admin, Group: "g",
				Selection: "labels.role=new"}, "admin", storetest.Now())
			return err
		},
		"token": func(ctx context.Context) error {
			_, err := s.Credentials.CreateAPIToken(ctx, credential.NewAPIToken{ID: "at-1", Name: "n", Actor: "admin",
				Scope: access.ScopeAdmin, ExpiresAt: storetest.Now().Add(time.Hour), Selection: "labels.token=new"},
				storetest.Now())
			return err
		},
		"budget": func(ctx context.Context) error {
			_, err := s.Budgets.SetBudget(ctx, &baremetalv1.Budget{Name: "b", Domain: "label:budget", AtOnce: 1}, "admin",
				storetest.Now())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			number++
			id := fmt.Sprint("m-", number)
			m := &baremetalv1.Machine{MachineId: id, Labels: map[string]string{name: "old"}}
			if _, err := s.Machines.Register(t.Context(), m, "admin", storetest.Now()); err != nil {
				t.Fatal(err)
			}
			// The use is written while a writer of fields is between its decision and its commit: it waits.
			done := make(chan error, 1)
			err := s.DB.InTx(t.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
				if err := q.ShareFieldUses(t.Context()); err != nil {
					return err
				}
				task.Background("a new "+name, func() { done <- use(t.Context()) })
				storetest.Eventually(t, func() bool { return waiters(t, s) > 0 }, "the new %s does not wait", name)
				select {
				case err := <-done:
					t.Errorf("the new %s is there before the write: %v", name, err)
				default:
				}
				return nil
			})
			if err == nil {
				err = <-done
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Machines.Update(operator, &baremetalv1.Machine{MachineId: id, Labels: map[string]string{name: "new"}},
				"op", storetest.Now())
			storetest.WantReason(t, err, "FIELD_IN_USE")
		})
	}
}
