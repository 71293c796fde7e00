package program

import (
	"fmt"
	"path/filepath"
)

// Classes are the faults that reveal a missing protection. Other bugs are looked for with all faults.
var Classes = map[string]string{
	"foreign-result":   "lie-agent",
	"ungranted-result": "lie-agent",
	"asked-boot":       "lie-agent",
	"late-claim":       "lie-agent",
	"boot-claim":       "lie-agent",
	"fence":            "lie-agent",
	"superseded":       "clone-agent",
	"boot-hardware":    "elsewhere-agent",
	"clone-hardware":   "elsewhere-agent",
	"memory-numbers":   "restore-agent,rollback-agent",
	"event-number":     "cut-agent,flap-agent,kill-agent",
	"window-clock":     "suspend-agent",
	"grant-window":     "suspend-agent",
	"shared-time":      "step-controller",
	"expiry-clock":     "step-agent",
	"known-time":       "step-agent,kill-agent",
	"intent-record":    "failpoint-agent,kill-agent",
	"dedup-cache":      "repeat-agent",

	"grant-receipt":     "suspend-asking-agent",
	"grant-start":       "suspend-agent",
	"rolled-back-fails": "rollback-agent,restore-agent",
	"rolled-back-stops": "rollback-agent,restore-agent",
	"memory-lost-fails": "forget-agent",
	"resume-fails":      "kill-agent,failpoint-agent",
	"unknown-retried":   "forget-agent,rollback-agent,restore-agent",
	"batch-written":     "full-agent,kill-agent",
	"batch-shared":      "full-agent,kill-agent",
	"event-unstored":    "delay-agent,cut-postgres,kill-postgres,lost-commit-postgres",
	"machine-feed":      "stop-controller,delay-postgres,reorder-postgres,failpoint-controller",
	"event-feed":        "stop-controller,delay-postgres,reorder-postgres,failpoint-controller",
	"webhook-feed":      "stop-controller,delay-postgres,reorder-postgres,failpoint-controller",
}

// wide are the bugs that show in wide worlds alone.
var wide = map[string]bool{"deadline-fails": true, "machine-feed": true, "event-feed": true,
	"webhook-feed": true, "batch-shared": true}

// WideEvery returns that one of so many runs is in a wide world, for a bug with faults of its own. It reports whether
// the bug has them.
func WideEvery(planted string) (every int, known bool) {
	if wide[planted] {
		return 1, true
	}
	return 0, Classes[planted] != ""
}

// Edit takes one protection of package planted away in a copy of a source file: one text stands for another.
type Edit struct{ File, From, To string }

// Edits are of the sources of the programs, which hold nothing of it themselves. Without the tag "planted" they change
// nothing that happens.
var Edits = []Edit{
	{"agent/session/session.go",
		"errors.Is(err, ErrSuperseded) ||",
		"errors.Is(err, ErrSuperseded) && !planted.Superseded ||"},
	{"agent/dispatch/run.go",
		`	err := d.cfg.Store.Start(ctx, j.id, intent, a.held, now)
`,
		`	var err error
	if !planted.IntentRecord {
		err = d.cfg.Store.Start(ctx, j.id, intent, a.held, now)
	}
`},
	{"agent/dispatch/decide.go",
		"boottime-a.asked <= GrantWindow",
		"boottime-a.asked <= GrantWindow || planted.GrantWindow"},
	{"agent/dispatch/dispatch.go",
		`	d := &Dispatcher{
`,
		`	if planted.WindowClock {
		cfg.Boottime = func() time.Duration { return time.Duration(cfg.Clock.Now().UnixNano()) }
	}
	d := &Dispatcher{
`},
	{"agent/dispatch/dispatch.go",
		`	d.mu.Lock()
	at, since := d.controllerTime, d.controllerAt
`,
		`	if planted.ExpiryClock {
		return d.cfg.Clock.Now(), nil
	}
	d.mu.Lock()
	at, since := d.controllerTime, d.controllerAt
`},
	{"agent/dispatch/grant.go",
		`		free := !d.cfg.needsGrant(j.spec)
		if free && d.heardTime() {
`,
		`		free := !d.cfg.needsGrant(j.spec) || planted.Grant
		if free && (d.heardTime() || planted.Grant) {
`},
	{"agent/state/commands.go",
		`		if len(found) > 0 {
			stored, known = found[0], true
			return nil
		}
`,
		`		if len(found) > 0 && !planted.DedupCache {
			stored, known = found[0], true
			return nil
		}
		if planted.DedupCache {
			if _, err := tx.Exec("DELETE FROM commands WHERE command_id = ?", c.ID); err != nil {
				return err
			}
		}
`},
	{"agent/state/begun.go",
		`err != nil || b.dir == "" {`,
		`err != nil || b.dir == "" || planted.DedupCache {`},
	{"agent/state/meta.go",
		"\t\tif _, err := tx.Exec(\"DELETE FROM events WHERE seq <= ?\", int64(min(shared, stored)))",
		`		if planted.OldEvents {
			shared = 0
		}
		if _, err := tx.Exec("DELETE FROM events WHERE seq <= ?", int64(min(shared, stored)))`},
	{"agent/agent.go",
		`func (a *Agent) forget(ctx context.Context) error {
`,
		`func (a *Agent) forget(ctx context.Context) error {
	if planted.NewStateID {
		return nil
	}
`},
	{"controller/controller.go",
		`	c.ready.set("starting")
`,
		`	if planted.SharedTime {
		c.clock, c.steered = c.ticks, nil
	}
	c.ready.set("starting")
`},
	{"controller/session/registry.go",
		"hwid.Compare(s.Hardware, hardware); v.Other() {",
		"hwid.Compare(s.Hardware, hardware); v.Other() && !planted.CloneHardware {"},
	{"agent/dispatch/grant.go",
		`			ok, r, err := d.judge(ctx, j, of, got)
`,
		`			if planted.GrantReceipt {
				of.asked = d.cfg.Boottime()
			}
			ok, r, err := d.judge(ctx, j, of, got)
`},
	{"agent/dispatch/run.go",
		`	if !a.fresh(d.cfg.Boottime()) || j.isCanceled() {
`,
		`	if !(planted.GrantStart || a.fresh(d.cfg.Boottime())) || j.isCanceled() {
`},
	{"agent/dispatch/decide.go",
		`	b, err := proto.Marshal(&fleetv1.CommandResult{
		CommandId: id, Outcome: fleetv1.CommandResult_UNKNOWN,
`,
		`	outcome := fleetv1.CommandResult_UNKNOWN
	if planted.RolledBackFails {
		outcome = fleetv1.CommandResult_FAILED
	}
	b, err := proto.Marshal(&fleetv1.CommandResult{
		CommandId: id, Outcome: outcome,
`},
	{"agent/dispatch/run.go",
		`	if j.stored.State == state.Started {
		began`,
		`	if planted.ResumeFails && j.stored.State == state.Started {
		return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "interrupted by a restart"), nil
	}
	if j.stored.State == state.Started {
		began`},
	{"agent/state/writer.go",
		`	return tx.Commit()
`,
		`	if err := tx.Commit(); err != nil && !planted.BatchWritten {
		return err
	}
	return nil
`},
	{"agent/state/writer.go",
		`	for _, d := range list {
		if d.err == nil {
`,
		`	for _, d := range list {
		if d.err == nil && !planted.BatchShared {
`},
	{"controller/api/agent/events.go",
		`		if err == nil || failure.From(err).Kind != failure.KindUnavailable {
`,
		`		if planted.EventUnstored {
			return nil
		}
		if err == nil || failure.From(err).Kind != failure.KindUnavailable {
`},
	{"controller/store/dbsqlc/machines.sql.go", "const changedMachines =", "var changedMachines ="},
	{"controller/store/dbsqlc/machines.sql.go",
		"  AND m.change_xid < pg_snapshot_xmin(pg_current_snapshot())\n  AND ($3::timestamptz",
		"` + planted.Bound(planted.MachineFeed, `AND m.change_xid < pg_snapshot_xmin(pg_current_snapshot())`) + `\n" +
			"  AND ($3::timestamptz"},
	{"controller/store/dbsqlc/operations.sql.go", "const eventFeed =", "var eventFeed ="},
	{"controller/store/dbsqlc/operations.sql.go",
		"  AND change_xid < pg_snapshot_xmin(pg_current_snapshot())\nORDER BY change_xid",
		"` + planted.Bound(planted.EventFeed, `AND change_xid < pg_snapshot_xmin(pg_current_snapshot())`) + `\n" +
			"ORDER BY change_xid"},
	{"controller/store/dbsqlc/webhooks.sql.go", "const operationEventsForWebhooks =", "var operationEventsForWebhooks ="},
	{"controller/store/dbsqlc/webhooks.sql.go",
		"  AND change_xid < pg_snapshot_xmin(pg_current_snapshot())\n  AND kind",
		"` + planted.Bound(planted.WebhookFeed, `AND change_xid < pg_snapshot_xmin(pg_current_snapshot())`) + `\n" +
			"  AND kind"},
	{"internal/pki/times.go",
		`	var latest time.Time
`,
		`	if planted.KnownTime {
		return candidates[0] // the local clock, wherever there is one
	}
	var latest time.Time
`},
}

// plant puts the edits into the overlay.
func (o overlaid) plant(tree string) error {
	for _, e := range Edits {
		path := filepath.Join(tree, e.File)
		if o.replace[path] == "" {
			const imports = "\nimport (\n"
			if err := o.change(path, imports, imports+"\t\"github.com/ingot-metal/ingot/internal/planted\"\n"); err != nil {
				return err
			}
		}
		if err := o.change(path, e.From, e.To); err != nil {
			return fmt.Errorf("plant a bug: %w", err)
		}
	}
	return nil
}
