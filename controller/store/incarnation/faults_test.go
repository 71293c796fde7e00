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
	compares := func(lost bool) func() error {
		return func() error {
			got, err := v.ComparePosition(ctx, "ctl", at)
			if err == nil && (got.Lost != "") != lost {
				t.Errorf("%+v", got)
			}
			return err
		}
	}
	call := func(name string, before func(), do func() error, frozen bool) storetest.Call {
		return storetest.Call{Name: name, Before: before, Do: do, After: func() {
			if f, err := v.WhyFrozen(ctx); err != nil || f.Active() != frozen {
				t.Errorf("%s: %+v, %v", name, f, err)
			}
		}}
	}
	storetest.Calls(t, s,
		call("compare", nil, compares(false), false),
		call("compare again", nil, compares(false), false),
		call("compare with another server's", func() {
			storetest.Exec(t, s, "UPDATE cluster_state SET wal_history = 'another'")
			v.NotePosition("op-1", 1, "", 0)
		}, compares(false), false),
		call("compare with an earlier start", func() {
			v.RememberMark(position.Mark{Incarnation: "another", ControllerID: "ctl-0", Beat: 1, At: at})
		}, compares(false), false),
		call("freeze", nil, func() error { return v.Freeze(ctx, "ann", "x", at) }, true),
		call("since", nil, func() error {
			since, _, err := v.Frozen(ctx)
			if err == nil && since.IsZero() {
				t.Error("not frozen")
			}
			return err
		}, true),
		call("why", nil, func() error { return errOf(v.WhyFrozen(ctx)) }, true),
		call("thaw", nil, func() error { return v.Thaw(ctx, "ann", "x", at) }, false),
		call("name", nil, func() error { return errOf(v.Incarnation(ctx)) }, false),
		call("a known grant", nil, func() error { return errOf(v.GrantWasLost(ctx, "cmd-1", 0, "ag-1", at, at)) }, true),
		call("restored", func() { storetest.Exec(t, s, "UPDATE cluster_state SET frozen_since = NULL") },
			func() error { return v.Restored(ctx, at) }, true),
		call("gone back", func() {
			if err := compares(false)(); err != nil {
				t.Fatal(err)
			}
			storetest.Exec(t, s, "UPDATE cluster_state SET frozen_since = NULL, wal_history = 'another/1'")
			storetest.Exec(t, s, "UPDATE controllers SET beat = 0")
		}, compares(true), true),
		call("listen", nil, func() error { return errOf(v.ExtendListening(ctx, "ctl", time.Minute, time.Minute)) }, true),
		call("listening", nil, func() error { return errOf(v.Listening(ctx)) }, true),
		call("awaited", nil, func() error { return errOf(v.AgentsAwaited(ctx, time.Hour)) }, true),
	)
}
