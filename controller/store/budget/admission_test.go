package budget_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/store"
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// queue is a fleet with budgets, slots, and operations that wait for some.
type queue struct {
	now      time.Time
	rules    []budget.Rule // by name
	machines []standing
	slots    []slot
	waiting  []waiting // in the order of creation
}

type standing struct {
	id string
	budget.Place
}

// slot is one that an operation which has ended has taken.
type slot struct {
	op, machine string
	budget.Slot
}

// waiting is an operation. Its place is where its machine stood at the request.
type waiting struct {
	op          string
	machine     int
	harms       []kind.Harm
	at          *budget.Place
	paused      bool // its rollout is
	forBudget   bool // it has found no room before
	createdBack time.Duration
}

// drawn is a queue of so many machines.
func drawn(r *rand.Rand, machines int, now time.Time) queue {
	q := queue{now: now}
	pick := func(names ...string) string { return names[r.IntN(len(names))] }
	place := func() budget.Place {
		p := budget.Place{Site: pick("east", "west"), Rack: pick("", "r1", "r2"), Labels: map[string]string{}}
		if rack := pick("", "r1", "r3"); rack != "" {
			p.Labels["rack"] = rack
		}
		if row := pick("", "1", "2"); row != "" {
			p.Labels["row"] = row
		}
		return p
	}
	limit := func(most int) int { return max(0, r.IntN(2*most)-most) }
	for i := range r.IntN(4) {
		rule := budget.Rule{Name: fmt.Sprint("rule-", i), Harm: kind.Destroys, Domain: pick("fleet", "site", "label:rack",
			"label:row"), AtOnce: limit(machines), Percent: limit(60), PerHour: limit(machines), PerDay: limit(machines)}
		if rule.Domain == "site" {
			rule.Value = pick("", "", "east")
		}
		if r.IntN(3) == 0 {
			rule.Harm = kind.Interrupts
		}
		q.rules = append(q.rules, rule)
	}
	for i := range machines {
		q.machines = append(q.machines, standing{fmt.Sprintf("m-%03d", i), place()})
	}
	for i, m := range q.machines {
		w := waiting{op: fmt.Sprintf("op-%03d", i), machine: i, harms: []kind.Harm{kind.Destroys}, forBudget: r.IntN(2) == 0,
			createdBack: time.Duration(machines-i/2) * time.Second, paused: r.IntN(8) == 0}
		if r.IntN(4) == 0 {
			w.harms = append(w.harms, kind.Interrupts)
		}
		if r.IntN(4) == 0 {
			w.harms = w.harms[len(w.harms)-1:]
		}
		if r.IntN(3) > 0 {
			p := place()
			w.at = &p
		}
		q.waiting = append(q.waiting, w)
		for _, harm := range []kind.Harm{kind.Destroys, kind.Interrupts} {
			if r.IntN(6) > 0 {
				continue
			}
			back := []time.Duration{time.Minute, 2 * time.Hour, 30 * time.Hour}[r.IntN(3)] + time.Duration(i)*time.Second
			q.slots = append(q.slots, slot{fmt.Sprintf("ended-%03d-%d", i, harm), m.id, budget.Slot{Place: place(), Harm: harm,
				Taken: now.Add(-back), Held: r.IntN(2) == 0, Also: []budget.Place{place()}[:r.IntN(2)]}})
		}
	}
	slices.SortFunc(q.waiting, func(a, b waiting) int {
		return cmp.Or(cmp.Compare(b.createdBack, a.createdBack), cmp.Compare(a.op, b.op))
	})
	slices.SortFunc(q.slots, func(a, b slot) int { return a.Taken.Compare(b.Taken) })
	return q
}

// answers are what package domain/budget makes of the queue: who is admitted, the verdicts on those that ask, and how
// much of the budgets is taken before.
func (q queue) answers() (admitted []string, verdicts map[string]*budget.Verdict, used []budget.Used) {
	var groups []budget.Group
	for _, m := range q.machines {
		groups = append(groups, budget.Group{Place: m.Place, Machines: 1})
	}
	holds := map[string][]kind.Harm{}
	var slots []budget.Slot
	for _, s := range q.slots {
		counted := s.Slot
		if s.Held {
			holds[s.machine] = append(holds[s.machine], s.Harm)
			i := slices.IndexFunc(q.machines, func(m standing) bool { return m.id == s.machine })
			counted.Also = append(slices.Clip(counted.Also), q.machines[i].Place)
		}
		slots = append(slots, counted)
	}
	limited := func(h kind.Harm) bool {
		return slices.ContainsFunc(q.rules, func(r budget.Rule) bool { return r.Harm == h })
	}
	var asking []budget.Request
	verdicts = map[string]*budget.Verdict{}
	for _, w := range q.waiting {
		var needs []kind.Harm
		free := true
		for _, h := range w.harms {
			if !slices.Contains(holds[q.machines[w.machine].id], h) {
				needs = append(needs, h)
				free = free && !limited(h)
			}
		}
		if w.paused {
			continue
		}
		if free {
			admitted = append(admitted, w.op)
		}
		if len(needs) == 0 {
			verdicts[w.op] = nil
			continue
		}
		request := budget.Request{OperationID: w.op, Harms: needs, Place: q.machines[w.machine].Place}
		if w.at != nil {
			request.Also = []budget.Place{*w.at}
		}
		asking = append(asking, request)
	}
	for _, v := range budget.Admit(q.rules, groups, slots, asking, q.now) {
		if v.Admitted {
			admitted, verdicts[v.OperationID] = append(admitted, v.OperationID), nil
			continue
		}
		verdicts[v.OperationID] = &v
	}
	slices.Sort(admitted)
	return slices.Compact(admitted), verdicts, budget.NewRound(q.rules, groups, slots, q.now).Usage()
}

// store replaces what the database has by the queue. Triggers and references are off: no history leads here.
func (q queue) store(t *testing.T, s *store.Store) {
	t.Helper()
	conn, err := s.DB.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	b := &pgx.Batch{}
	b.Queue("SET session_replication_role = replica")
	for _, table := range []string{"budgets", "budget_slots", "operations", "machines", "rollouts", "rollout_machines"} {
		b.Queue("DELETE FROM " + table)
	}
	for _, r := range q.rules {
		b.Queue(`INSERT INTO budgets (name, domain, value, at_once, percent, per_hour, per_day, harm, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now())`, r.Name, r.Domain, r.Value, r.AtOnce, r.Percent, r.PerHour, r.PerDay,
			r.Harm.String())
	}
	for _, m := range q.machines {
		b.Queue(`INSERT INTO machines (machine_id, labels, spec, phase, node_state, node_state_changed_at, created_at)
			VALUES ($1, $2, jsonb_build_object('site', $3::text, 'rack', $4::text), 'MAINTENANCE', 'active', now(), now())`,
			m.id,
			labels(t, m.Place), m.Site, m.Rack)
	}
	for _, o := range q.slots {
		var site, rack *string
		var with []byte
		if len(o.Also) > 0 {
			site, rack, with = &o.Also[0].Site, &o.Also[0].Rack, labels(t, o.Also[0])
		}
		b.Queue(`INSERT INTO operations (operation_id, target_id, request_id, request_body, type, phase, plan_id, created_at,
			updated_at, finished_at, request_site, request_labels, request_rack)
			VALUES ($1, $2, $1, '{}', 'REBOOT', 'FAILED', 'reboot', $3, $3, $3, $4, $5, $6)`, o.op, o.machine, o.Taken, site,
			with, rack)
		var released *time.Time
		if !o.Held {
			released = &q.now
		}
		b.Queue(`INSERT INTO budget_slots (operation_id, machine_id, site, labels, rack, harm, taken_at, released_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, o.op, o.machine, o.Site, labels(t, o.Place), o.Rack, o.Harm.String(),
			o.Taken, released)
	}
	for _, w := range q.waiting {
		q.storeWaiting(t, b, w)
	}
	b.Queue("RESET session_replication_role")
	if err := conn.SendBatch(t.Context(), b).Close(); err != nil {
		t.Fatal(err)
	}
}

func (q queue) storeWaiting(t *testing.T, b *pgx.Batch, w waiting) {
	t.Helper()
	var site, rack *string
	var with []byte
	if w.at != nil {
		site, rack, with = &w.at.Site, &w.at.Rack, labels(t, *w.at)
	}
	reason := ""
	if w.forBudget {
		reason = "WAITING_FOR_BUDGET"
	}
	b.Queue(`INSERT INTO operations (operation_id, target_id, request_id, request_body, type, phase, plan_id, wake_at,
		created_at, updated_at, destructive, interrupts, wait_reason, request_site, request_labels, request_rack)
		VALUES ($1, $2, $1, '{}', 'REBOOT', 'PENDING', 'reboot', 'epoch', $3, $3, $4, $5, $6, $7, $8, $9)`, w.op,
		q.machines[w.machine].id, q.now.Add(-w.createdBack), slices.Contains(w.harms, kind.Destroys),
		slices.Contains(w.harms, kind.Interrupts), reason, site, with, rack)
	if w.paused {
		b.Queue(
			`INSERT INTO rollouts (rollout_id, request_id, spec, type, plan_id, destructive, digest, state, waves, created_by,
			created_at, updated_at) VALUES ($1, $1, '', 'REBOOT', 'reboot', true, '', 'PAUSED', 1, 'ann', now(), now())`,
			w.op,
		)
		b.Queue(`INSERT INTO rollout_machines (rollout_id, position, machine_id, wave, domain, state, operation_id)
			VALUES ($1, 1, $2, 1, '', 'RUNNING', $1)`, w.op, q.machines[w.machine].id)
	}
}

func labels(t *testing.T, p budget.Place) []byte {
	t.Helper()
	out, err := json.Marshal(p.Labels)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Random queues are answered as package domain/budget answers them: from the budgets, slots and places that are stored,
// in the order of creation, however many wait.
func TestAdmissionsOfRandomQueues(t *testing.T) {
	s := storetest.New(t)
	base := storetest.Now()
	for i := range 60 {
		machines := []int{3, 8, 30}[i%3]
		if i == 0 || i == 30 {
			machines = 450 // several pages of the queue
		}
		r := rand.New(rand.NewPCG(uint64(i), 1))
		q := drawn(r, machines, base.Add(time.Duration(i)*time.Minute)) // the fleet is counted anew each time
		q.store(t, s)
		admitted, verdicts, used := q.answers()
		q.asked(t, s, fmt.Sprint("queue ", i), verdicts, used)
		n, busy, err := s.Budgets.AdmitDestructive(t.Context(), q.now)
		if err != nil || busy || n != len(admitted) {
			t.Errorf("queue %d: admitted %d, busy %t, %v, want %d", i, n, busy, err, len(admitted))
		}
		var woken []string
		if err := s.DB.Pool().QueryRow(t.Context(), `SELECT coalesce(array_agg(operation_id ORDER BY operation_id), '{}')
			FROM operations WHERE wake_at = $1`, q.now).Scan(&woken); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(woken, admitted) && len(woken)+len(admitted) > 0 {
			t.Errorf("queue %d: woken are %v, want %v\n%+v", i, woken, admitted, q)
		}
		if n := storetest.Count(
			t,
			s,
			`SELECT count(*) FROM operations o CROSS JOIN (VALUES ('DESTROYS'), ('INTERRUPTS')) h (harm)
			WHERE o.wake_at = $1 AND CASE h.harm WHEN 'DESTROYS' THEN o.destructive ELSE o.interrupts END AND NOT EXISTS (
				SELECT 1 FROM budget_slots b WHERE b.operation_id = o.operation_id AND b.harm = h.harm AND b.released_at IS NULL)`,
			q.now,
		); n != 0 {
			t.Errorf("queue %d: %d slots are missing", i, n)
		}
		if t.Failed() {
			return
		}
	}
}

// asked compares what the store reads of the budgets with the answers of the domain.
func (q queue) asked(
	t *testing.T, s *store.Store, name string, verdicts map[string]*budget.Verdict, used []budget.Used,
) {
	t.Helper()
	got, n, err := s.Budgets.BudgetUsage(t.Context(), q.now)
	// Of domains that are equally full, any one is named.
	same := func(a, b budget.Used) bool { return a.Rule == b.Rule && a.Kind == b.Kind && a.Ratio() == b.Ratio() }
	if err != nil || !slices.EqualFunc(got, used, same) {
		t.Errorf("%s: used is %+v, %v, want %+v", name, got, err, used)
	}
	want := int64(0)
	for _, w := range q.waiting {
		if w.forBudget {
			want++
		}
	}
	if n != want {
		t.Errorf("%s: %d wait, want %d", name, n, want)
	}
	step := max(1, len(q.waiting)/30) // some of many
	for i := 0; i < len(q.waiting); i += step {
		op := q.waiting[i].op
		want, asks := verdicts[op]
		if !asks {
			continue
		}
		got, err := budgetstore.BudgetVerdict(t.Context(), s.DB.Q, &s.Budgets.Counts, op, q.now)
		if err != nil || (got == nil) != (want == nil) || got != nil && !sameVerdict(*got, *want) {
			t.Errorf("%s: the verdict on %s is %+v, %v, want %+v\n%+v", name, op, got, err, want, q)
		}
	}
}

func sameVerdict(a, b budget.Verdict) bool {
	a.Until, b.Until = a.Until.UTC(), b.Until.UTC()
	return reflect.DeepEqual(a, b)
}

// Where the fleet's budget is full, or the verdict is on one of the first, one page of the queue is read, however many
// wait.
func TestAFullFleetReadsOnePage(t *testing.T) {
	t.Parallel()
	pages := &pages{}
	s := storetest.With(t, store.Config{Tracer: pages})
	q := queue{now: storetest.Now(), rules: []budget.Rule{{Name: "all", Harm: kind.Destroys, Domain: "fleet", AtOnce: 2}}}
	for i := range 450 {
		q.machines = append(q.machines, standing{id: fmt.Sprintf("m-%03d", i)})
		q.waiting = append(q.waiting, waiting{op: fmt.Sprintf("op-%03d", i), machine: i, harms: []kind.Harm{kind.Destroys}})
	}
	q.store(t, s)
	for name, c := range map[string]struct {
		call func() error
		want int64
	}{
		"the verdict on the first": {func() error { return verdictOn(t, s, q, "op-000") }, 1},
		"the verdict on the last":  {func() error { return verdictOn(t, s, q, "op-449") }, 1},
		"usage":                    {func() error { _, _, err := s.Budgets.BudgetUsage(t.Context(), q.now); return err }, 0},
		"an admission": {func() error {
			_, _, err := s.Budgets.AdmitDestructive(t.Context(), q.now)
			return err
		}, 1},
	} {
		before := pages.n.Load()
		if err := c.call(); err != nil {
			t.Fatal(err)
		}
		if got := pages.n.Load() - before; got != c.want {
			t.Errorf("%s reads %d pages, want %d", name, got, c.want)
		}
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM budget_slots"); n != 2 {
		t.Errorf("%d slots", n)
	}
	// A budget of rows is full for none but its row: the walk ends with the operation that is asked for.
	q.rules = []budget.Rule{{Name: "rows", Harm: kind.Destroys, Domain: "label:row", AtOnce: 1}}
	q.store(t, s)
	for op, want := range map[string]int64{"op-000": 1, "op-199": 1, "op-200": 2, "op-449": 3} {
		before := pages.n.Load()
		if err := verdictOn(t, s, q, op); err != nil {
			t.Fatal(err)
		}
		if got := pages.n.Load() - before; got != want {
			t.Errorf("the verdict on %s reads %d pages, want %d", op, got, want)
		}
	}
}

func verdictOn(t *testing.T, s *store.Store, q queue, op string) error {
	t.Helper()
	_, err := budgetstore.BudgetVerdict(t.Context(), s.DB.Q, &s.Budgets.Counts, op, q.now)
	return err
}

// pages counts the pages of the queue that are read.
type pages struct{ n atomic.Int64 }

func (p *pages) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "name: WaitingForSlots ") {
		p.n.Add(1)
	}
	return ctx
}

func (p *pages) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
