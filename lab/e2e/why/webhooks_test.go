package why

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// receiver is a webhook's receiver, with its expected explanation.
type receiver struct {
	harness.Expected
	url func(t *testing.T) string
}

// answering is a receiver that answers so.
func answering(status int, header ...string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if len(header) == 2 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(status)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
}

func faultsOfReceivers() []receiver {
	return []receiver{
		{harness.Expected{Fault: "all is well", Reasons: []string{""}, On: "nobody", Says: []string{"has been taken"},
			Do: "webhook test"}, answering(http.StatusNoContent)},
		{harness.Expected{Fault: "receiver down", Reasons: []string{""}, On: "receiver", Says: []string{"connection refused"},
			Do: "--url"}, func(t *testing.T) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close() //nolint:errcheck // nothing was sent
			return "http://" + l.Addr().String()
		}},
		{harness.Expected{Fault: "receiver answers 500", Reasons: []string{""}, On: "receiver", Says: []string{"HTTP 500"},
			Do: "pause"}, answering(http.StatusInternalServerError)},
		{harness.Expected{Fault: "receiver answers 410", Reasons: []string{""}, On: "operator",
			Says: []string{"410 Gone", "disabled"}, Do: "resume"}, answering(http.StatusGone)},
		{harness.Expected{Fault: "receiver refuses the signature", Reasons: []string{""}, On: "operator",
			Says: []string{"HTTP 401", "signature"}, Do: "rotate"}, answering(http.StatusUnauthorized)},
		{harness.Expected{Fault: "receiver does not know the address", Reasons: []string{""}, On: "operator",
			Says: []string{"HTTP 404"}, Do: "--url"}, answering(http.StatusNotFound)},
		{harness.Expected{Fault: "receiver has moved", Reasons: []string{""}, On: "operator",
			Says: []string{"redirects are not followed"}, Do: "--url"},
			answering(http.StatusFound, "Location", "/elsewhere")},
		{harness.Expected{Fault: "receiver wants to be left alone", Reasons: []string{""}, On: "receiver",
			Says: []string{"left alone"}, Do: "webhook test"},
			answering(http.StatusServiceUnavailable, "Retry-After", "600")},
		{harness.Expected{Fault: "certificate of nobody's authority", Reasons: []string{""}, On: "operator",
			Says: []string{"unknown authority", "nothing was sent"}, Do: "ca_file"}, func(t *testing.T) string {
			s := httptest.NewTLSServer(http.NotFoundHandler())
			t.Cleanup(s.Close)
			return s.URL
		}},
		{harness.Expected{Fault: "receiver closes the connection", Reasons: []string{""}, On: "receiver",
			Says: []string{"without an answer"}, Do: "--url"}, func(t *testing.T) string {
			s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
			t.Cleanup(s.Close)
			return s.URL
		}},
		{harness.Expected{Fault: "name that does not resolve", Reasons: []string{""}, On: "operator", Says: []string{"DNS"},
			Do: "--url"},
			func(*testing.T) string { return "https://receiver.invalid/" }},
	}
}

// TestWhyNamesFaultsOfWebhooks breaks a receiver for each line, and asks the command line.
func TestWhyNamesFaultsOfWebhooks(t *testing.T) {
	t.Parallel()
	loopback, all := true, &harness.Answers{}
	c := harness.New(t, harness.Options{Configure: func(cfg *config.Config) { cfg.Webhooks.AllowLoopback = loopback }})
	ask := func(name string) *baremetalv1.ExplainMachineResponse {
		t.Helper()
		code, out := c.Ingot("webhook", "why", name, "-o", "json")
		e := &baremetalv1.ExplainMachineResponse{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(out), e); code != 0 || err != nil {
			t.Fatalf("exit code %d: %v\n%s", code, err, out)
		}
		return e
	}
	faults, id := faultsOfReceivers(), func(i int) string { return "hook-" + string(rune('a'+i)) }
	for i, x := range faults {
		harness.Must(t, c.Admin().CreateWebhook, &baremetalv1.CreateWebhookRequest{Webhook: &baremetalv1.Webhook{
			WebhookId: id(i), Url: x.url(t), EventTypes: []string{"machine.registered"},
		}})
	}
	c.Register(&baremetalv1.Machine{MachineId: "m-told"})
	for i, x := range faults {
		all.Ask(t, x.Expected, func() *baremetalv1.ExplainMachineResponse { return ask(id(i)) })
	}
	paused := id(0)
	harness.Must(t, c.Admin().UpdateWebhook, &baremetalv1.UpdateWebhookRequest{
		Webhook: &baremetalv1.Webhook{WebhookId: paused}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"enabled"}},
	})
	all.Ask(t, harness.Expected{Fault: "paused by somebody", Reasons: []string{""}, On: "operator",
		Says: []string{"an operator has paused it"}, Do: "webhook resume " + paused},
		func() *baremetalv1.ExplainMachineResponse { return ask(paused) })

	loopback = false
	c.Stop()
	c.Start()
	c.WaitReady()
	refused := id(slices.IndexFunc(faults, func(x receiver) bool { return x.Fault == "receiver answers 500" }))
	testkit.Eventually(t, rig.Soon, func() bool {
		code, _ := c.Ingot("webhook", "test", refused)
		return code != 0
	}, "an address that may not be called is called")
	all.Ask(t, harness.Expected{Fault: "address that may not be called any more", Reasons: []string{""}, On: "operator",
		Says: []string{"may not be called"}, Do: "allow_"},
		func() *baremetalv1.ExplainMachineResponse { return ask(refused) })
	all.Table(t)
}
