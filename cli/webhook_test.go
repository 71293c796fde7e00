package cli

import (
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func TestWebhookCommands(t *testing.T) {
	golden(t, "webhook", fleet,
		"webhook list",
		"webhook list -o wide",
		"webhook list -o name",
		"webhook list -o json",
		"webhook get failures",
		"webhook get wh-1",
		"webhook get wh-1 -o yaml",
		"webhook get nobody",
		"webhook why failures",
		"webhook why wh-1",
		"webhook why wh-1 -o json",
		"webhook why nobody",
		"webhook create https://hooks.example.org/all",
		"webhook create https://hooks.example.org/x --name x --event operation.failed,machine.* --event operation.canceled "+
			"--filter site=berlin,labels.env=prod --max-concurrency 4 -o json",
		"webhook create https://hooks.example.org/failures --name failures",
		"webhook create https://hooks.example.org/failures --name wh-1",
		"webhook create https://hooks.example.org/all -o name",
		"webhook update failures --url https://hooks.example.net/failures",
		"webhook update failures --event machine.* --filter '' --max-concurrency 1 -o name",
		"webhook update failures --all-events -o name",
		"webhook update failures",
		"webhook update failures --event machine.* --all-events",
		"webhook pause failures",
		"webhook resume wh-1",
		"webhook rotate failures",
		"webhook rotate failures --overlap 0s -o name",
		"webhook rotate failures --overlap 48h -o name",
		"webhook test failures",
		"webhook test failures --no-wait",
		"webhook test nobody",
		"webhook deliveries",
		"webhook deliveries wh-1 --state dead -o wide",
		"webhook deliveries --limit 1 -o name",
		"webhook deliveries --delivery dlv-7 -o json",
		"webhook redeliver dlv-2",
		"webhook redeliver dlv-no dlv-2 dlv-gone dlv-1",
		"webhook redeliver dlv-no",
		"webhook delete failures",
		"webhook delete nobody",
		"__complete webhook get ''",
		"__complete webhook redeliver ''",
		"__complete webhook create https://h/ --event operation.c",
	)
}

// TestAPingThatIsNotTaken: its end is the exit code.
func TestAPingThatIsNotTaken(t *testing.T) {
	golden(t, "webhook-ping", func() *fakeServer {
		f := fleet()
		f.pinged = &pb.WebhookDelivery{
			DeliveryId: "dlv-9", WebhookId: "failures", EventType: "ping", State: "dead", Attempts: 1,
			LastError: "TLS: certificate has expired\x1b[2J",
		}
		return f
	}, "webhook test failures", "webhook test failures -o json")
}

// TestWhatIsNotRepeated: where the answer of a call is lost that makes something anew each time, a person decides. The
// others are repeated.
func TestWhatIsNotRepeated(t *testing.T) {
	for line, calls := range map[string]int{
		"webhook create https://h/":                   1,
		"webhook test failures":                       1,
		"webhook rotate failures":                     1,
		"webhook redeliver dlv-2 dlv-1":               1, // nor is the next one sent
		"webhook pause failures":                      2,
		"webhook resume failures":                     2,
		"webhook update failures --url https://h/":    2,
		"webhook delete failures":                     2,
		"webhook get failures":                        2,
		"webhook deliveries failures --limit 1":       2,
		"node transition machine-1 retired --dry-run": 2,
	} {
		f := fleet()
		f.op = &pb.Operation{MachineId: "machine-1", Phase: pb.Operation_SUCCEEDED}
		f.lose = map[string]error{}
		for _, method := range []string{
			"CreateWebhook", "TestWebhook", "UpdateWebhook", "RedeliverWebhook", "DeleteWebhook", "GetWebhook",
			"ListWebhookDeliveries", "TransitionNode",
		} {
			f.lose[method] = lostConnection
		}
		got := f.run(t, strings.Fields(line)...)
		if len(f.asked) != calls || (calls == 1) != (got.code == command.ExitUnavailable) {
			t.Errorf("%s: asked %v, %+v", line, f.asked, got)
		}
		if calls == 2 && f.asked[0] != f.asked[1] {
			t.Errorf("%s: repeated as another call: %v", line, f.asked)
		}
	}
}
