package incarnation_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/position"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// errOf drops what a call returns besides its error.
func errOf[T any](_ T, err error) error { return err }

// A statement that fails is an error of the call, which changes nothing then, and is no loss.
func TestAFailedStatementFreezesNothing(t *testing.T) {
	t.Parallel()
	s := storetest.NewFaulty(t)
	ctx, at, v := t.Context(), storetest.Now(), s.Incarnations
	storetest.Lease(t, s)
	storetest.Register(t, s, "m-1")
	frozen := false
	compares := func(lost bool) func() error {
		return func() error {
			got, err := v.ComparePosition(ctx, "ctl", at)
			if err == nil && (got.Lost != "") != lost {
				t.Errorf("%+v", got)
			}
			return err
		}
	}
	for _, c := range []struct {
		name   string
		before func()
		call   func() error
		frozen bool
	}{
		{"compare", nil, compares(false), false},
		{"compare again", nil, compares(false), false},
		{"compare with another server's", func() {
			storetest.Exec(t, s, "UPDATE cluster_state SET wal_history = 'another'")
			v.NotePosition("op-1", 1, "", 0)
		}, compares(false), false},
		{"compare with an earlier start", func() {
			v.RememberMark(position.Mark{Incarnation: "another", ControllerID: "ctl-0", Beat: 1, At: at})
		}, compares(false), false},
		{"freeze", nil, func() error { return v.Freeze(ctx, "ann", "x", at) }, true},
		{"since", nil, func() error {
			since, _, err := v.Frozen(ctx)
			if err == nil && since.IsZero() {
				t.Error("not frozen")
			}
			return err
		}, true},
		{"why", nil, func() error { return errOf(v.WhyFrozen(ctx)) }, true},
		{"thaw", nil, func() error { return v.Thaw(ctx, "ann", "x", at) }, false},
		{"name", nil, func() error { return errOf(v.Incarnation(ctx)) }, false},
		{"a known grant", nil, func() error { return errOf(v.GrantWasLost(ctx, "cmd-1", 0, "ag-1", at, at)) }, true},
		{"restored", func() { storetest.Exec(t, s, "UPDATE cluster_state SET frozen_since = NULL") },
			func() error { return v.Restored(ctx, at) }, true},
		{"gone back", func() {
			if err := compares(false)(); err != nil {
				t.Fatal(err)
			}
			storetest.Exec(t, s, "UPDATE cluster_state SET frozen_since = NULL, wal_history = 'another/1'")
			storetest.Exec(t, s, "UPDATE controllers SET beat = 0")
		}, compares(true), true},
		{"listen", nil, func() error { return errOf(v.ExtendListening(ctx, "ctl", time.Minute, time.Minute)) }, true},
		{"listening", nil, func() error { return errOf(v.Listening(ctx)) }, true},
		{"awaited", nil, func() error { return errOf(v.AgentsAwaited(ctx, time.Hour)) }, true},
	} {
		if c.before != nil {
			c.before()
		}
		if err := storetest.Each(t, s, c.call); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		f, err := v.WhyFrozen(ctx)
		if frozen = f.Active(); err != nil || frozen != c.frozen {
			t.Errorf("%s: frozen %t, %v", c.name, frozen, err)
		}
		if t.Failed() {
			t.Fatal(c.name)
		}
	}
}
