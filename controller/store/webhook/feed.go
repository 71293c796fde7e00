package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/ids"
)

var (
	fpBeforeDeliveries = failpoint.Register("webhook.before-deliveries")
	fpAfterDeliveries  = failpoint.Register("webhook.after-deliveries")
)

// DeliveryJob names a delivery that must be tried. Round grows when its tries begin anew.
type DeliveryJob struct {
	DeliveryID, WebhookID string
	Round                 int32
}

// EnqueueDeliveries puts a job for each delivery into the running transaction.
type EnqueueDeliveries func(ctx context.Context, tx pgx.Tx, jobs []DeliveryJob) error

// OnDeliveries sets the function that schedules new deliveries, inside their transaction. Without one the sweep finds
// them.
func (s *Store) OnDeliveries(e EnqueueDeliveries) { s.deliver = e }

func (s *Store) enqueueDeliveries(ctx context.Context, tx pgx.Tx, jobs []DeliveryJob) error {
	if s.deliver == nil || len(jobs) == 0 {
		return nil
	}
	return s.deliver(ctx, tx, jobs)
}

// FannedOut is what FanOut has done.
type FannedOut struct {
	Events, Deliveries int
	// More is set when there may be more to do right now.
	More bool
}

// FanOut turns events into deliveries for the webhooks that want them. An event and its place in the feed move in one
// transaction. So none is lost and none is turned twice, whenever a controller dies. Only one does it at a time.
func (s *Store) FanOut(ctx context.Context, source string, limit int32, now time.Time) (FannedOut, error) {
	var out FannedOut
	err := s.db.InTx(ctx, func(tx pgx.Tx, q *dbsqlc.Queries) error {
		out = FannedOut{}
		feed, err := q.LockWebhookFeed(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock the feed: %w", err)
		}
		hooks, err := q.ActiveWebhooks(ctx)
		if err != nil || len(hooks) == 0 {
			return err
		}
		events, err := s.takeEvents(ctx, q, feed, limit, &out)
		if err != nil {
			return err
		}
		ofRollouts, err := s.takeRolloutEvents(ctx, q, hooks, limit, &out)
		if err != nil {
			return err
		}
		ofSites, err := s.takeSiteEvents(ctx, q, hooks, limit, &out)
		if err != nil {
			return err
		}
		events = slices.Concat(events, ofRollouts, ofSites)
		d, err := deliveries(source, hooks, events)
		if err != nil {
			return err
		}
		out.Deliveries = len(d.jobs)
		return s.insertDeliveries(ctx, tx, q, d, now)
	})
	if err != nil {
		return FannedOut{}, fmt.Errorf("fan out events: %w", err)
	}
	return out, fpAfterDeliveries.HitCtx(ctx)
}

// happened is an event and the machines that it is about, as they are now.
type happened struct {
	webhook.Event
	machines []*baremetalv1.Machine
}

// whereThere is the machine of an event, if it is still there.
func whereThere(m *baremetalv1.Machine) []*baremetalv1.Machine {
	if m == nil {
		return nil
	}
	return []*baremetalv1.Machine{m}
}

// takeEvents reads the next events and moves the feed behind them.
func (s *Store) takeEvents(
	ctx context.Context, q *dbsqlc.Queries, feed dbsqlc.LockWebhookFeedRow, limit int32, out *FannedOut,
) ([]happened, error) {
	ops, err := q.OperationEventsForWebhooks(ctx, dbsqlc.OperationEventsForWebhooksParams{
		AfterXid: feed.AfterXid, AfterOperation: feed.AfterOperation, AfterSeq: feed.AfterSeq,
		Kinds: webhook.OperationKinds(), PageSize: limit,
	})
	if err != nil {
		return nil, fmt.Errorf("read events of operations: %w", err)
	}
	changes, err := q.TakeMachineChanges(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("take changes of machines: %w", err)
	}
	out.Events, out.More = len(ops)+len(changes), len(ops) == int(limit) || len(changes) == int(limit)
	if len(ops) > 0 {
		last := ops[len(ops)-1]
		err := q.MoveWebhookFeed(ctx, dbsqlc.MoveWebhookFeedParams{
			AfterXid: fmt.Sprint(last.ChangeXid), AfterOperation: last.OperationID, AfterSeq: last.Seq,
		})
		if err != nil {
			return nil, fmt.Errorf("move the feed: %w", err)
		}
	}
	machines, err := s.machinesOf(ctx, q, ops, changes)
	if err != nil {
		return nil, err
	}
	return eventsOf(ops, changes, machines)
}

func (s *Store) machinesOf(
	ctx context.Context, q *dbsqlc.Queries, ops []dbsqlc.OperationEvent, changes []dbsqlc.WebhookOutbox,
) (map[string]*baremetalv1.Machine, error) {
	wanted := map[string]bool{}
	var idList []string
	add := func(id string) {
		if !wanted[id] {
			wanted[id] = true
			idList = append(idList, id)
		}
	}
	for _, o := range ops {
		add(o.TargetID)
	}
	for _, c := range changes {
		add(c.MachineID)
	}
	if len(idList) == 0 {
		return nil, nil
	}
	rows, err := q.MachinesByIDs(ctx, idList)
	if err != nil {
		return nil, fmt.Errorf("read machines: %w", err)
	}
	all, err := s.machines.MachineMessages(ctx, rows)
	if err != nil {
		return nil, err
	}
	out := map[string]*baremetalv1.Machine{}
	for _, m := range all {
		out[m.GetMachineId()] = m
	}
	return out, nil
}

// eventsOf assigns ids to events. An uncommitted event was never sent, so an id may be made anew with every try.
func eventsOf(
	ops []dbsqlc.OperationEvent, changes []dbsqlc.WebhookOutbox, machines map[string]*baremetalv1.Machine,
) ([]happened, error) {
	out := make([]happened, 0, len(ops)+len(changes))
	for _, o := range ops {
		snapshot := &baremetalv1.Operation{}
		if err := proto.Unmarshal(o.Snapshot, snapshot); err != nil {
			return nil, fmt.Errorf("parse stored operation: %w", err)
		}
		out = append(out, happened{machines: whereThere(machines[o.TargetID]), Event: webhook.Event{
			ID: ids.New(ids.Event), Type: webhook.TypeOfOperation(o.Kind), Subject: o.OperationID, MachineID: o.TargetID,
			Time: o.Ts, Data: snapshot,
		}})
	}
	for _, c := range changes {
		m := machines[c.MachineID]
		out = append(out, happened{machines: whereThere(m), Event: webhook.Event{
			ID: ids.New(ids.Event), Type: webhook.TypeOfMachine(c.Kind), Subject: c.MachineID, MachineID: c.MachineID,
			Time: c.Ts, From: c.FromValue, To: c.ToValue, Data: m,
		}})
	}
	return out, nil
}

// newDeliveries are rows to insert, column by column, and their jobs.
type newDeliveries struct {
	dbsqlc.InsertDeliveriesParams
	jobs []DeliveryJob
}

func (d *newDeliveries) add(webhookID string, e webhook.Event, body []byte) {
	id := ids.New(ids.Delivery)
	d.DeliveryIds = append(d.DeliveryIds, id)
	d.WebhookIds = append(d.WebhookIds, webhookID)
	d.EventIds = append(d.EventIds, e.ID)
	d.EventTypes = append(d.EventTypes, e.Type)
	d.Subjects = append(d.Subjects, e.Subject)
	d.MachineIds = append(d.MachineIds, e.MachineID)
	d.Bodies = append(d.Bodies, body)
	d.jobs = append(d.jobs, DeliveryJob{id, webhookID, 1})
}

// deliveries makes a delivery of each event for the webhooks that want it. Its body is made once, and only for one that
// is wanted.
func deliveries(source string, hooks []dbsqlc.Webhook, events []happened) (*newDeliveries, error) {
	filters := make([]machinefilter.Filter, len(hooks))
	for i, h := range hooks {
		filters[i] = machinefilter.Parse(h.Filter)
	}
	out := &newDeliveries{}
	for _, e := range events {
		var body []byte
		for i, h := range hooks {
			if !webhook.Wants(h.EventTypes, e.Type) || !filters[i].MatchesAny(e.machines) {
				continue
			}
			if body == nil {
				var err error
				if body, err = webhook.Body(source, e.Event); err != nil {
					return nil, err
				}
			}
			out.add(h.WebhookID, e.Event, body)
		}
	}
	return out, nil
}

func (s *Store) insertDeliveries(
	ctx context.Context, tx pgx.Tx, q *dbsqlc.Queries, d *newDeliveries, now time.Time,
) error {
	if len(d.jobs) > 0 {
		d.CreatedAt = now
		if err := q.InsertDeliveries(ctx, d.InsertDeliveriesParams); err != nil {
			return fmt.Errorf("insert deliveries: %w", err)
		}
		if err := s.enqueueDeliveries(ctx, tx, d.jobs); err != nil {
			return err
		}
	}
	return fpBeforeDeliveries.HitCtx(ctx)
}
