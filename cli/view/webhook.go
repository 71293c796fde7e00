package view

import (
	"strconv"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Webhooks are the columns of `ingot webhook list`.
func (s Style) Webhooks(w *pb.Webhook) (cells, wide []Cell) {
	return []Cell{
			{"WEBHOOK_ID", w.GetWebhookId()}, {"URL", Clean(w.GetUrl())}, {"EVENTS", eventTypes(w)},
			{"FILTER", Clean(w.GetFilter())}, {"STATE", s.webhookState(w)}, {"PENDING", count(w.GetPendingDeliveries())},
			{"DEAD", s.dead(w.GetDeadDeliveries())},
		}, []Cell{
			{"CONCURRENCY", strconv.Itoa(int(w.GetMaxConcurrency()))}, {"FAILING_FOR", Age(w.GetFailingSince(), s.Now)},
			{"FAILED_EVENTS", count(int64(w.GetFailedEvents()))}, {"AGE", Age(w.GetCreatedAt(), s.Now)},
		}
}

func eventTypes(w *pb.Webhook) string {
	if len(w.GetEventTypes()) == 0 {
		return "all"
	}
	return Clean(strings.Join(w.GetEventTypes(), ","))
}

// webhookState is the state, with the reason where it does not send.
func (s Style) webhookState(w *pb.Webhook) string {
	if w.GetStateReason() == "" {
		return w.GetState()
	}
	return s.Warn(w.GetState() + " (" + w.GetStateReason() + ")")
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

func (s Style) dead(n int64) string {
	if n == 0 {
		return "0"
	}
	return s.Warn(count(n))
}

// Webhook is the sheet of `ingot webhook get`.
func (s Style) Webhook(w *pb.Webhook) string {
	f := &Fields{}
	f.Add("Webhook", w.GetWebhookId())
	f.Add("URL", Clean(w.GetUrl()))
	f.Add("Events", eventTypes(w))
	f.Add("Filter", Clean(w.GetFilter()))
	f.Add("State", s.webhookState(w))
	f.Add("Since", Time(w.GetStateChangedAt()))
	f.Add("Concurrency", strconv.Itoa(int(w.GetMaxConcurrency())))
	f.Add("Pending", count(w.GetPendingDeliveries()))
	f.Add("Dead", s.dead(w.GetDeadDeliveries()))
	if w.GetFailingSince() != nil {
		f.Add("Failing", s.Warn("for "+Age(w.GetFailingSince(), s.Now)+", "+count(int64(w.GetFailedEvents()))+
			" events given up in a row"))
	}
	f.Add("HeldUntil", Time(w.GetHoldUntil()))
	f.Add("Created", Time(w.GetCreatedAt()))
	for _, sec := range w.GetSecrets() {
		text := sec.GetSecretId() + ", signs since " + Time(sec.GetCreatedAt())
		if sec.GetExpiresAt() != nil {
			text += " until " + Time(sec.GetExpiresAt())
		}
		f.Add("SecretId", text)
	}
	f.Add("Secret", s.Bold(w.GetSecret()))
	return f.String()
}

// WebhookDeliveries are the columns of `ingot webhook deliveries`.
func (s Style) WebhookDeliveries(d *pb.WebhookDelivery) (cells, wide []Cell) {
	status := ""
	if d.GetLastStatus() != 0 {
		status = strconv.Itoa(int(d.GetLastStatus()))
	}
	return []Cell{
			{"DELIVERY_ID", d.GetDeliveryId()}, {"WEBHOOK_ID", d.GetWebhookId()}, {"EVENT", d.GetEventType()},
			{"SUBJECT", d.GetSubject()}, {"STATE", s.deliveryState(d.GetState())},
			{"TRIES", strconv.Itoa(int(d.GetAttempts()))}, {"STATUS", status}, {"AGE", Age(d.GetCreatedAt(), s.Now)},
			{"NEXT", until(d, s.Now)}, {"ERROR", Clean(d.GetLastError())},
		}, []Cell{
			{"EVENT_ID", d.GetEventId()}, {"MACHINE_ID", d.GetMachineId()}, {"LAST_TRY", Time(d.GetLastAttemptAt())},
			{"FINISHED", Time(d.GetFinishedAt())},
		}
}

func (s Style) deliveryState(state string) string {
	switch state {
	case "delivered":
		return s.Good(state)
	case "dead":
		return s.Bad(state)
	}
	return state
}

// until returns when a delivery is tried next.
func until(d *pb.WebhookDelivery, now time.Time) string {
	switch {
	case d.GetNextAt() == nil:
		return ""
	case d.GetNextAt().AsTime().After(now):
		return "in " + Duration(d.GetNextAt().AsTime().Sub(now).Truncate(time.Second))
	}
	return "now"
}

// WebhookDelivery is what became of one delivery, in a line.
func (s Style) WebhookDelivery(d *pb.WebhookDelivery) string {
	line := d.GetEventType() + " " + d.GetDeliveryId() + " to " + d.GetWebhookId() + ": " + s.deliveryState(d.GetState())
	if d.GetState() == "delivered" {
		line += ", HTTP " + strconv.Itoa(int(d.GetLastStatus()))
	} else if d.GetLastError() != "" {
		line += ", " + Clean(d.GetLastError())
	}
	return line + "\n"
}
