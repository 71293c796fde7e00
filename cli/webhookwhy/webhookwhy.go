// Package webhookwhy explains why events do not reach a receiver, and names the remedy.
package webhookwhy

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// trouble is what the error of a try means: whom it is for, and what helps.
type trouble struct {
	// begins is how the error does.
	begins, on, means string
	// do and brings are a command, with WEBHOOK for the webhook's id, and its consequence.
	do, brings string
}

// Who must do something about a webhook.
const (
	onReceiver = "receiver"
	onOperator = "operator"
	onNobody   = "nobody"
)

const (
	updateURL = "ingot webhook update WEBHOOK --url URL"
	newURL    = "events go to another address, those that wait too"
)

// troubles are looked through from the top.
var troubles = []trouble{
	{"connection refused", onReceiver, "no program listens at the address: the receiver is down, or elsewhere", updateURL,
		newURL},
	{"no answer within", onReceiver, "the receiver does not answer in time", updateURL, newURL},
	{"the receiver closed", onReceiver, "the receiver ends the connection without an answer", updateURL, newURL},
	{"TLS: the receiver", onOperator, "the receiver does not speak TLS, or not with us", updateURL, newURL},
	{"TLS:", onOperator, "the receiver's certificate does not verify; nothing was sent",
		"webhooks.ca_file   (in the controller's configuration)",
		"names the authority of the receiver's certificate, if it is one of your own"},
	{"DNS:", onOperator, "the address's name does not resolve where the controller runs", updateURL, newURL},
	{"refused:", onOperator, "the name leads to an address that may not be called; nothing was sent",
		"webhooks.allow_…   (in the controller's configuration)",
		"allows private, loopback or link-local addresses, for all webhooks"},
	{"the address is refused", onOperator, "the address may not be called; nothing was sent",
		"webhooks.allow_…   (in the controller's configuration)",
		"allows private, loopback or link-local addresses, for all webhooks"},
	{"HTTP 3", onOperator, "the receiver has moved; redirects are not followed", updateURL, newURL},
	{"HTTP 401", onOperator, "the receiver refuses the signature, or wants credentials that webhooks do not have",
		"ingot webhook rotate WEBHOOK", "shows a new secret, to give to the receiver"},
	{"HTTP 403", onOperator, "the receiver refuses the signature, or wants credentials that webhooks do not have",
		"ingot webhook rotate WEBHOOK", "shows a new secret, to give to the receiver"},
	{"HTTP 429", onReceiver, "the receiver has no time for so many events",
		"ingot webhook update WEBHOOK --max-concurrency 1", "sends one event at a time from each controller"},
	{"HTTP 4", onOperator, "the receiver does not take what is sent to that address", updateURL, newURL},
	{"HTTP 5", onReceiver, "the receiver fails over the event, or has no time", updateURL, newURL},
}

// troubleOf reads what a try ended with.
func troubleOf(problem string) trouble {
	for _, t := range troubles {
		if strings.HasPrefix(problem, t.begins) {
			return t
		}
	}
	return trouble{on: onReceiver, means: "the event does not get through", do: updateURL, brings: newURL}
}

// stopped is what it means that a webhook is not active, by its reason.
var stopped = map[string]string{
	"GONE":     "the receiver has answered 410 Gone: it wants nothing any more, and what was pending was given up",
	"OPERATOR": "an operator has paused it; what is pending waits, and later events are not queued for it",
	"FAILING": "it was paused, because it had failed for days; what is pending waits, and what happens is not queued " +
		"for it",
	"BACKLOG": "it was paused, because too many events waited for it; what happens is not queued for it",
}

// Explain answers for a webhook as ExplainMachine does for machines, by the API's data on it and on its newest
// deliveries.
func Explain(w *pb.Webhook, newest []*pb.WebhookDelivery, now time.Time) *pb.ExplainMachineResponse {
	e := &pb.ExplainMachineResponse{WaitsOn: onNobody, Since: w.GetFailingSince()}
	last := lastTry(e, newest)
	held := w.GetHoldUntil() != nil && w.GetHoldUntil().AsTime().After(now)
	switch failed := lastFailed(newest); {
	case w.GetState() != "active":
		notActive(e, w, failed)
	case held:
		e.WaitsOn, e.WaitsFor, e.Cause = onReceiver, w.GetUrl(), "the receiver has asked to be left alone for a while"
		e.NextAction, e.NextActionAt = "goes on with what waits", w.GetHoldUntil()
	case failed != nil && (w.GetFailingSince() != nil || last == failed):
		failing(e, w, failed)
	case w.GetPendingDeliveries() > 0:
		e.Cause, e.NextAction, e.NextActionAt = "events are on their way", "sends them", earliestOf(newest)
	default:
		e.Cause = "all that was to be sent has been taken"
	}
	whyDead(e, w)
	test := &pb.OperatorAction{Command: "ingot webhook test " + w.GetWebhookId(),
		Consequence: "sends one event now, and says what came of it"}
	e.Actions = append(e.Actions, test)
	e.Summary = "webhook " + w.GetWebhookId() + " is " + w.GetState() + ": " + e.GetCause()
	return e
}

func action(id, command, consequence string, destructive bool) *pb.OperatorAction {
	return &pb.OperatorAction{Command: strings.ReplaceAll(command, "WEBHOOK", id), Consequence: consequence,
		Destructive: destructive}
}

// lastTry fills in the last thing that a receiver was seen to do.
func lastTry(e *pb.ExplainMachineResponse, newest []*pb.WebhookDelivery) *pb.WebhookDelivery {
	last := latestTry(newest, func(*pb.WebhookDelivery) bool { return true })
	if last != nil {
		what := last.GetLastError()
		if last.GetState() == "delivered" {
			what = fmt.Sprintf("HTTP %d", last.GetLastStatus())
		}
		e.LastEvidence, e.LastEvidenceAt = last.GetEventType()+" "+last.GetDeliveryId()+": "+what, last.GetLastAttemptAt()
	}
	return last
}

func lastFailed(newest []*pb.WebhookDelivery) *pb.WebhookDelivery {
	return latestTry(newest, func(d *pb.WebhookDelivery) bool {
		return d.GetLastError() != "" &&
			d.GetState() != "delivered"
	})
}

func latestTry(newest []*pb.WebhookDelivery, is func(*pb.WebhookDelivery) bool) (best *pb.WebhookDelivery) {
	for _, d := range newest {
		tried := d.GetLastAttemptAt()
		if tried != nil && is(d) && (best == nil || tried.AsTime().After(best.GetLastAttemptAt().AsTime())) {
			best = d
		}
	}
	return best
}

// earliestOf is when something is tried next; nil where nothing has a time.
func earliestOf(newest []*pb.WebhookDelivery) (at *timestamppb.Timestamp) {
	for _, d := range newest {
		if n := d.GetNextAt(); n != nil && (at == nil || n.AsTime().Before(at.AsTime())) {
			at = n
		}
	}
	return at
}

func notActive(e *pb.ExplainMachineResponse, w *pb.Webhook, failed *pb.WebhookDelivery) {
	id := w.GetWebhookId()
	e.WaitsOn, e.WaitsFor, e.Since = onOperator, "an admin who resumes it", w.GetStateChangedAt()
	e.Cause = stopped[w.GetStateReason()]
	if e.Cause == "" {
		e.Cause = "it is " + w.GetState()
	}
	e.Facts = append(e.Facts, "its state is "+w.GetState()+" ("+w.GetStateReason()+")")
	if failed != nil && w.GetStateReason() != "OPERATOR" {
		t := troubleOf(failed.GetLastError())
		e.Facts = append(e.Facts, "the last try: "+failed.GetLastError()+"; "+t.means)
		e.Actions = append(e.Actions, action(id, t.do, t.brings, false))
	}
	e.Actions = append(e.Actions, action(id, "ingot webhook resume WEBHOOK",
		"sends what is pending, and queues what happens from now on", false),
		action(id, "ingot webhook delete WEBHOOK", "removes it with its secrets and deliveries", true))
}

func failing(e *pb.ExplainMachineResponse, w *pb.Webhook, failed *pb.WebhookDelivery) {
	t := troubleOf(failed.GetLastError())
	e.WaitsOn, e.WaitsFor, e.Cause = t.on, w.GetUrl(), t.means+" ("+failed.GetLastError()+")"
	if t.on == onOperator {
		e.WaitsFor = "a person who mends it"
	}
	e.Facts = append(e.Facts, fmt.Sprintf("%s has been tried %d times", failed.GetDeliveryId(), failed.GetAttempts()))
	if w.GetPendingDeliveries() > 0 {
		e.NextAction, e.NextActionAt = "tries again, less and less often, for about a day; then the event is given up",
			failed.GetNextAt()
	}
	e.Actions = append(e.Actions, action(w.GetWebhookId(), t.do, t.brings, false),
		action(w.GetWebhookId(), "ingot webhook pause WEBHOOK",
			"what is pending waits, and what happens is not queued for it", false))
}

// whyDead is about events that were given up.
func whyDead(e *pb.ExplainMachineResponse, w *pb.Webhook) {
	if n := w.GetFailedEvents(); n > 0 {
		e.Facts = append(e.Facts, fmt.Sprintf("%d events in a row were given up", n))
	}
	if w.GetPendingDeliveries() > 0 {
		e.Facts = append(e.Facts, fmt.Sprintf("%d events wait", w.GetPendingDeliveries()))
	}
	if w.GetDeadDeliveries() == 0 {
		return
	}
	e.Facts = append(e.Facts, fmt.Sprintf("%d events were given up, and can be sent again", w.GetDeadDeliveries()))
	e.Actions = append(e.Actions, action(w.GetWebhookId(), "ingot webhook deliveries WEBHOOK --state dead",
		"lists them; ingot webhook redeliver sends them again", false))
}
