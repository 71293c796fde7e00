package webhookwhy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// TestExplain: whatever keeps events from a receiver, it is said who must act, what comes next by itself, and what
// helps.
func TestExplain(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(d)) }
	failed := func(problem string) []*pb.WebhookDelivery {
		return []*pb.WebhookDelivery{
			{DeliveryId: "dlv-2", State: "pending", Attempts: 2, LastError: problem, LastAttemptAt: at(-time.Second),
				NextAt: at(time.Minute)},
			{DeliveryId: "dlv-1", State: "delivered", LastStatus: 204, LastAttemptAt: at(-time.Hour)},
		}
	}
	failing := &pb.Webhook{State: "active", FailingSince: at(-time.Minute), PendingDeliveries: 1}
	for _, c := range []struct {
		name           string
		w              *pb.Webhook
		newest         []*pb.WebhookDelivery
		on, says, does string
		next           bool
	}{
		{"nothing was ever sent", &pb.Webhook{State: "active"}, nil, "nobody", "has been taken", "ingot webhook test", false},
		{"about to be sent", &pb.Webhook{State: "active", PendingDeliveries: 1},
			[]*pb.WebhookDelivery{{State: "pending", NextAt: at(0)}}, "nobody", "on their way", "test", true},
		{"an old failure is forgotten", &pb.Webhook{State: "active", DeadDeliveries: 1}, []*pb.WebhookDelivery{
			{State: "delivered", LastStatus: 200, LastAttemptAt: at(0)},
			{State: "dead", LastError: "HTTP 500", LastAttemptAt: at(-time.Hour)},
		}, "nobody", "given up, and can be sent again", "--state dead", false},
		{"down", failing, failed("connection refused"), "receiver", "down", "update wh-1 --url", true},
		{"slow", failing, failed("no answer within 15s"), "receiver", "in time", "update", true},
		{"5xx", failing, failed("HTTP 500 Internal Server Error"), "receiver", "HTTP 500", "pause", true},
		{"401", failing, failed("HTTP 401 Unauthorized"), "operator", "signature", "rotate", true},
		{"404", failing, failed("HTTP 404 Not Found"), "operator", "does not take", "--url", true},
		{"moved", failing, failed("HTTP 302 Found (redirects are not followed)"), "operator", "has moved", "--url", true},
		{"certificate", failing, failed("TLS: x509: certificate signed by unknown authority"), "operator", "does not verify",
			"ca_file", true},
		{"no TLS", failing, failed("TLS: the receiver does not speak it"), "operator", "speak TLS", "--url", true},
		{"DNS", failing, failed("DNS: no such host"), "operator", "resolve", "--url", true},
		{"refused", failing, failed("refused: 127.0.0.1 is a loopback address, which may not be called"), "operator",
			"may not be called", "allow_", true},
		{"unheard of", failing, failed("request failed: what"), "receiver", "does not get through", "--url", true},
		{"held", &pb.Webhook{State: "active", HoldUntil: at(time.Minute), PendingDeliveries: 1}, failed("HTTP 429"),
			"receiver", "left alone", "test", true},
		{"gone", &pb.Webhook{State: "disabled", StateReason: "GONE"}, nil, "operator", "410 Gone", "resume", false},
		{"paused", &pb.Webhook{State: "paused", StateReason: "OPERATOR"}, failed("HTTP 500"), "operator",
			"an operator has paused it", "resume", false},
		{"given up", &pb.Webhook{State: "paused", StateReason: "FAILING", FailedEvents: 10}, failed("connection refused"),
			"operator", "10 events in a row", "update wh-1 --url", false},
	} {
		c.w.WebhookId = "wh-1"
		e := Explain(c.w, c.newest, now)
		all := strings.Join(append([]string{e.GetSummary(), e.GetCause()}, e.GetFacts()...), "\n")
		offers := slices.ContainsFunc(e.GetActions(),
			func(a *pb.OperatorAction) bool { return strings.Contains(a.GetCommand(), c.does) })
		if e.GetWaitsOn() != c.on || !strings.Contains(all, c.says) || !offers || (e.GetNextAction() != "") != c.next {
			t.Errorf("%s: on %s, next %q: %s\n%v", c.name, e.GetWaitsOn(), e.GetNextAction(), all, e.GetActions())
		}
	}
}
