package attack

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/lab/harness"
)

func selectionAttempts() []Attempt {
	return []Attempt{
		{Party: Reader, Attempt: "read machines outside one's selection by list, cursor, watch and tombstone", Rule: 14,
			Run: readOutside},
		{Party: Operator, Attempt: "work on machines outside one's selection by kept selections and rollouts", Rule: 14,
			Run: rollOutside},
		{Party: Operator, Attempt: "have a rollout begin on machines that have left one's selection", Rule: 14,
			Run: rollOn},
	}
}

// outsider is a client with a selection that looks for what lies outside of it.
type outsider struct {
	*harness.Client
	// answers are all messages that it has been sent; gone counts the tombstones among them.
	answers []string
	gone    int
}

// take keeps what a machine of an answer shows.
func (o *outsider) take(m *baremetalv1.Machine) {
	if m.GetDeletedAt() != nil {
		o.gone++
	}
	o.answers = append(o.answers, protojson.Format(m))
}

// list reads all pages of a list or of a reconcile.
func (o *outsider) list(ctx context.Context, r *baremetalv1.ListMachinesRequest) (next string, err error) {
	for {
		page, err := o.Machines().ListMachines(ctx, r)
		if err != nil {
			return "", err
		}
		for _, m := range page.GetMachines() {
			o.take(m)
		}
		next := page.GetNextCursor()
		if raw, err := base64.RawURLEncoding.DecodeString(next); err == nil {
			o.answers = append(o.answers, string(raw)) // what a cursor names is read, too
		}
		switch {
		case page.GetNextPageToken() != "":
			r.PageToken = page.GetNextPageToken()
		case page.GetMore():
			r.Cursor, r.UpdatedSince = next, nil
		default:
			return next, nil
		}
	}
}

// watch takes what a watch sends within a moment.
func (o *outsider) watch(ctx context.Context, cursor string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	machines, err := o.Machines().WatchMachines(ctx, &baremetalv1.WatchMachinesRequest{Cursor: cursor})
	for err == nil {
		var ev *baremetalv1.MachineEvent
		if ev, err = machines.Recv(); err == nil {
			o.answers = append(o.answers, protojson.Format(ev))
		}
	}
}

// watchWork takes the operations that it is sent within a moment.
func (o *outsider) watchWork(ctx context.Context, filter string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	work, err := o.Operations().WatchOperations(ctx,
		&baremetalv1.WatchOperationsRequest{FromBeginning: true, Filter: filter})
	for err == nil {
		var ev *baremetalv1.OperationEvent
		if ev, err = work.Recv(); err == nil {
			o.answers = append(o.answers, protojson.Format(ev))
		}
	}
}

// forged are cursors made of a cursor: of all time, of the whole fleet, and of another selection.
func forged(cursor string) (out []string, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return nil, err
	}
	for _, change := range []map[string]any{{"x": "0"}, {"l": ""}, {"l": "", "x": "0"}, {"l": "0123456789abcdef"},
		{"x": "18446744073709551615"}} {
		fields := map[string]any{}
		if err := json.Unmarshal(raw, &fields); err != nil {
			return nil, err
		}
		for k, v := range change {
			fields[k] = v
		}
		b, err := json.Marshal(fields)
		if err != nil {
			return nil, err
		}
		out = append(out, base64.RawURLEncoding.EncodeToString(b))
	}
	return out, nil
}

// readOutside: a token reads one site. One machine is at another, and one goes there.
func readOutside(ctx context.Context, r *Rig) (Outcome, error) {
	machine := func(id, site, rack string) *baremetalv1.Machine {
		return &baremetalv1.Machine{MachineId: id, Labels: map[string]string{"rack": rack},
			Spec: &baremetalv1.MachineSpec{Site: site, Rack: rack}}
	}
	r.C.Register(machine("m-stays", "here", "r1"))
	r.C.Register(machine("m-moves", "here", "r1"))
	r.C.Register(machine("m-elsewhere", "site-b7", "secret"))
	c, _, err := token(ctx, r.C.Client, "narrow", "read", "site=here")
	if err != nil {
		return Outcome{}, err
	}
	o := &outsider{Client: c}
	before := time.Now()
	cursor, err := o.list(ctx, &baremetalv1.ListMachinesRequest{})
	if err != nil {
		return Outcome{}, err
	}
	for _, m := range []*baremetalv1.Machine{machine("m-moves", "site-b7", "secret"),
		machine("m-elsewhere", "site-b7", "secret-too")} {
		if _, err := r.C.Machines().UpdateMachine(ctx, &baremetalv1.UpdateMachineRequest{Machine: m}); err != nil {
			return Outcome{}, err
		}
	}
	for _, id := range []string{"m-moves", "m-elsewhere"} {
		if _, err := r.C.Machines().EnterMaintenance(ctx, &baremetalv1.EnterMaintenanceRequest{MachineId: id,
			RequestId: "1"}); err != nil {
			return Outcome{}, err
		}
	}
	if err := until(ctx, func() error {
		if _, err := o.list(ctx, &baremetalv1.ListMachinesRequest{Cursor: cursor}); err != nil {
			return err
		}
		if shown, _ := o.judge(0); o.gone == 0 && !shown.Breach {
			return fmt.Errorf("the machine that has left is no tombstone")
		}
		return nil
	}); err != nil {
		return Outcome{}, err
	}
	made, err := forged(cursor)
	if err != nil {
		return Outcome{}, err
	}
	refused := 0
	for _, cursor := range append(made, "") {
		for _, q := range []*baremetalv1.ListMachinesRequest{{Cursor: cursor}, {Cursor: cursor, Filter: "machine_id=m-moves"},
			{UpdatedSince: timestamppb.New(before)}, {Filter: "site=site-b7"}, {Filter: "machine_id=m-elsewhere"},
			{Filter: "rack=secret*"}} {
			if _, err := o.list(ctx, q); err != nil {
				refused++
			}
		}
		o.watch(ctx, cursor)
	}
	for _, filter := range []string{"", "machine_id=m-moves", "machine_id=m-elsewhere", "type=ENTER_MAINTENANCE"} {
		o.watchWork(ctx, filter)
		ops, err := o.Operations().ListOperations(ctx, &baremetalv1.ListOperationsRequest{Filter: filter})
		if err == nil {
			o.answers = append(o.answers, protojson.Format(ops))
		}
	}
	return o.judge(refused)
}

// judge looks for what lies outside in all answers. Of the machine that has left, tombstones and earlier states may be
// there.
func (o *outsider) judge(refused int) (Outcome, error) {
	for _, a := range o.answers {
		for _, bad := range []string{"secret", "site-b7", "m-elsewhere", "ENTER_MAINTENANCE"} {
			if strings.Contains(a, bad) {
				return breached("an answer shows %q: %s", bad, a), nil
			}
		}
		var ev baremetalv1.MachineEvent
		m := ev.GetMachine()
		if protojson.Unmarshal([]byte(a), &ev) == nil && ev.GetKind() == baremetalv1.MachineEvent_LEFT {
			m = ev.GetMachine()
		} else if one := new(baremetalv1.Machine); protojson.Unmarshal([]byte(a), one) == nil && one.GetDeletedAt() != nil {
			m = one
		}
		if m != nil && !proto.Equal(m, &baremetalv1.Machine{MachineId: "m-moves", DeletedAt: m.GetDeletedAt()}) {
			return breached("a tombstone shows more than the id: %s", a), nil
		}
	}
	return held("%d answers show nothing outside, %d tombstones among them; %d calls refused", len(o.answers), o.gone,
		refused), nil
}

// rollOutside: a token operates one site. It selects the fleet, another's selection and machines of another site, rolls
// out over all of it, and acts on another's rollout.
func rollOutside(ctx context.Context, r *Rig) (Outcome, error) {
	for id, site := range map[string]string{"m-own": "own", "m-other": "other"} {
		r.C.Register(&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{Site: site}})
	}
	self, _, err := token(ctx, r.C.Client, "narrow", "operate", "site=own")
	if err != nil {
		return Outcome{}, err
	}
	mine, theirs := rolloutsOf(self), rolloutsOf(r.C.Client)
	fleet, err := theirs.CreateSelection(
		ctx,
		&baremetalv1.CreateSelectionRequest{RequestId: "fleet", Filter: "machine_id=*"},
	)
	if err != nil {
		return Outcome{}, err
	}
	for what, q := range map[string]*baremetalv1.CreateSelectionRequest{
		"another's request": {RequestId: "fleet", Filter: "machine_id=*"},
		"a name":            {RequestId: "named", MachineIds: []string{"m-own", "m-other"}},
	} {
		if got, err := mine.CreateSelection(ctx, q); err == nil {
			return breached("it selects %d machines by %s", got.GetCount(), what), nil
		}
	}
	for what, spec := range map[string]*baremetalv1.RolloutSpec{
		"all": {Filter: "machine_id=*", Type: "ENTER_MAINTENANCE"}, "a name": {Filter: "machine_id=m-other", Type: "REBOOT"},
		"another's selection": {SelectionId: fleet.GetSelectionId(), Type: "ENTER_MAINTENANCE"},
	} {
		p, err := mine.PreviewRollout(ctx, &baremetalv1.PreviewRolloutRequest{Spec: spec})
		if err != nil {
			continue
		}
		if slices.ContainsFunc(p.GetMachines(), func(m *baremetalv1.RolloutMachine) bool {
			return m.GetMachineId() == "m-other"
		}) {
			return breached("a preview over %s shows m-other", what), nil
		}
		_, _ = mine.CreateRollout(ctx, // it may be empty
			&baremetalv1.CreateRolloutRequest{RequestId: "own " + what, Spec: spec, Digest: p.GetDigest()})
	}
	spec := &baremetalv1.RolloutSpec{Filter: "machine_id=m-other", Type: "ENTER_MAINTENANCE"}
	p, err := theirs.PreviewRollout(ctx, &baremetalv1.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		return Outcome{}, err
	}
	ops, err := r.C.Operations().ListOperations(ctx, &baremetalv1.ListOperationsRequest{Filter: "machine_id=m-other"})
	if err != nil || len(ops.GetOperations()) > 0 {
		return breached("m-other has work: %v, %v", ops, err), nil
	}
	other, err := theirs.CreateRollout(ctx, &baremetalv1.CreateRolloutRequest{RequestId: "other", Spec: spec,
		Digest: p.GetDigest()})
	if err != nil {
		return Outcome{}, err
	}
	if _, err := mine.CancelRollout(ctx, &baremetalv1.CancelRolloutRequest{RolloutId: other.GetRolloutId()}); err == nil {
		return breached("it cancels another's rollout"), nil
	}
	if got, err := mine.GetRollout(ctx, &baremetalv1.GetRolloutRequest{RolloutId: other.GetRolloutId()}); err == nil {
		return breached("it reads another's rollout: %v", got), nil
	}
	all, err := mine.ListRollouts(ctx, &baremetalv1.ListRolloutsRequest{})
	if err != nil || len(all.GetRollouts()) == 0 || strings.Contains(protojson.Format(all), other.GetRolloutId()) {
		return breached("its rollouts are %v, %v", all, err), nil
	}
	return held("its rollout is over its own machine alone"), nil
}

// rollOn: a token operates one site, and creates two rollouts that wait. One machine goes to another site, and the
// other rollout's token is revoked. An admin lets both go on.
func rollOn(ctx context.Context, r *Rig) (Outcome, error) {
	register := func(id, site string) {
		r.C.Register(&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{Site: site}})
	}
	const left, stays, late = "m-left", "m-stays", "m-late"
	register(left, "own")
	register(stays, "own")
	register(late, "later")
	waits := func(name, site string) (tokenID, rollout string, err error) {
		c, id, err := token(ctx, r.C.Client, name, "operate", "site="+site)
		if err != nil {
			return "", "", err
		}
		spec := &baremetalv1.RolloutSpec{Filter: "site=" + site, Type: "ENTER_MAINTENANCE", RequireApproval: true}
		p, err := rolloutsOf(c).PreviewRollout(ctx, &baremetalv1.PreviewRolloutRequest{Spec: spec})
		if err != nil {
			return "", "", err
		}
		ro, err := rolloutsOf(c).CreateRollout(ctx, &baremetalv1.CreateRolloutRequest{RequestId: name, Spec: spec,
			Digest: p.GetDigest()})
		return id, ro.GetRolloutId(), err
	}
	_, first, err := waits("narrow", "own")
	if err != nil {
		return Outcome{}, err
	}
	revoked, second, err := waits("revoked", "later")
	if err != nil {
		return Outcome{}, err
	}
	if _, err := r.C.Machines().UpdateMachine(ctx, &baremetalv1.UpdateMachineRequest{Machine: &baremetalv1.Machine{
		MachineId: left, Spec: &baremetalv1.MachineSpec{Site: "other"}}}); err != nil {
		return Outcome{}, err
	}
	if _, err := r.C.Admin().RevokeAPIToken(ctx, &baremetalv1.RevokeAPITokenRequest{TokenId: revoked}); err != nil {
		return Outcome{}, err
	}
	approver := r.Client("approver", access.ScopeAdmin)
	for _, id := range []string{first, second} {
		if err := approved(ctx, approver, id); err != nil {
			return Outcome{}, err
		}
	}
	for _, id := range []string{left, stays, late} {
		ops, err := r.C.Operations().ListOperations(ctx, &baremetalv1.ListOperationsRequest{Filter: "machine_id=" + id})
		if err != nil {
			return Outcome{}, err
		}
		if n := len(ops.GetOperations()); id == stays && n != 1 {
			return Outcome{}, fmt.Errorf("%s has %d operations: the rollouts are wrong", id, n)
		} else if id != stays && n > 0 {
			return breached("a rollout has begun on %s", id), nil
		}
	}
	return held("the machine that has left and that of the revoked token are skipped"), nil
}

// approved approves a rollout, and waits for its end.
func approved(ctx context.Context, c *harness.Client, id string) error {
	ro, err := rolloutsOf(c).GetRollout(ctx, &baremetalv1.GetRolloutRequest{RolloutId: id})
	if err != nil {
		return err
	}
	if _, err := rolloutsOf(c).ApproveRollout(ctx,
		&baremetalv1.ApproveRolloutRequest{RolloutId: id, Digest: ro.GetDigest()}); err != nil {
		return err
	}
	return until(ctx, func() error {
		ro, err := rolloutsOf(c).GetRollout(ctx, &baremetalv1.GetRolloutRequest{RolloutId: id})
		if err == nil && ro.GetFinishedAt() == nil {
			err = fmt.Errorf("rollout %s is %s: %s", id, ro.GetState(), ro.GetMessage())
		}
		return err
	})
}
