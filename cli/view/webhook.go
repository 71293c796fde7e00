package view

import (
	"strconv"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Webhooks is the table of `ingot webhook list`.
func (s Style) Webhooks(list []*pb.Webhook, wide bool, now time.Time) *Table {
	t := &Table{Header: []string{"WEBHOOK_ID", "URL", "EVENTS", "FILTER", "STATE", "PENDING", "DEAD"}}
	if wide {
		t.Header = append(t.Header, "CONCURRENCY", "FAILING_FOR", "FAILED_EVENTS", "AGE")
	}
	for _, w := range list {
		cells := []string{
			w.GetWebhookId(), Clean(w.GetUrl()), eventTypes(w), Clean(w.GetFilter()), s.webhookState(w),
			count(w.GetPendingDeliveries()), s.dead(w.GetDeadDeliveries()),
		}
		if wide {
			cells = append(cells, strconv.Itoa(int(w.GetMaxConcurrency())), Age(w.GetFailingSince(), now),
				count(int64(w.GetFailedEvents())), Age(w.GetCreatedAt(), now))
		}
		t.Add(cells...)
	}
	return t
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
func (s Style) Webhook(w *pb.Webhook, now time.Time) string {
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
		f.Add("Failing", s.Warn("for "+Age(w.GetFailingSince(), now)+", "+count(int64(w.GetFailedEvents()))+
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

// WebhookDeliveries is the table of `ingot webhook deliveries`.
func (s Style) WebhookDeliveries(list []*pb.WebhookDelivery, wide bool, now time.Time) *Table {
	t := &Table{Header: []string{"DELIVERY_ID", "WEBHOOK_ID", "EVENT", "SUBJECT", "STATE", "TRIES", "STATUS", "AGE",
		"NEXT", "ERROR"}}
	if wide {
		t.Header = append(t.Header, "EVENT_ID", "MACHINE_ID", "LAST_TRY", "FINISHED")
	}
	for _, d := range list {
		status := ""
		if d.GetLastStatus() != 0 {
			status = strconv.Itoa(int(d.GetLastStatus()))
		}
		cells := []string{
			d.GetDeliveryId(), d.GetWebhookId(), d.GetEventType(), d.GetSubject(), s.deliveryState(d.GetState()),
			strconv.Itoa(int(d.GetAttempts())), status, Age(d.GetCreatedAt(), now), until(d, now), Clean(d.GetLastError()),
		}
		if wide {
			cells = append(cells, d.GetEventId(), d.GetMachineId(), Time(d.GetLastAttemptAt()), Time(d.GetFinishedAt()))
		}
		t.Add(cells...)
	}
	return t
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

// until says when a delivery is tried next.
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
