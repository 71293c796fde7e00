package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/webhook"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestTheScheduleIsTheDocumentedOne: 12 tries over 23 hours, the waits three times as long each time up to five hours,
// a fifth more or less.
func TestTheScheduleIsTheDocumentedOne(t *testing.T) {
	s := webhook.Schedule{}.Filled()
	want := []time.Duration{10 * time.Second, 30 * time.Second, 90 * time.Second, 270 * time.Second, 810 * time.Second,
		2430 * time.Second,
		7290 * time.Second, 5 * time.Hour, 5 * time.Hour, 5 * time.Hour, 5 * time.Hour}
	var sum time.Duration
	for i, d := range want {
		if got := s.Wait(i+1, 0.5); got != d {
			t.Errorf("after try %d: %s, want %s", i+1, got, d)
		}
		if low, high := s.Wait(i+1, 0), s.Wait(i+1, 1); low != d*8/10 || high != d*12/10 {
			t.Errorf("after try %d: %s to %s", i+1, low, high)
		}
		sum += d
	}
	if s.MaxAttempts != len(want)+1 || sum < 22*time.Hour || sum > 24*time.Hour {
		t.Errorf("%d tries over %s", s.MaxAttempts, sum)
	}
	if got := s.Wait(10_000, 0.5); got != 5*time.Hour {
		t.Errorf("far out: %s", got)
	}
}

func TestWhatBecomesOfATry(t *testing.T) {
	s := webhook.Schedule{MaxAttempts: 3, Base: time.Second}.Filled()
	failed := webhook.Judge(500, "", noon)
	for name, c := range map[string]struct {
		kind    string
		attempt int
		r       webhook.Result
		want    webhook.Verdict
	}{
		"success": {webhook.MachineUpdated, 3, webhook.Judge(204, "", noon),
			webhook.Verdict{State: webhook.Delivered}},
		"first failure": {webhook.MachineUpdated, 1, failed,
			webhook.Verdict{State: webhook.Pending, Wait: time.Second}},
		"second failure": {webhook.MachineUpdated, 2, failed,
			webhook.Verdict{State: webhook.Pending, Wait: 3 * time.Second}},
		"last failure":       {webhook.MachineUpdated, 3, failed, webhook.Verdict{State: webhook.Dead}},
		"more than the last": {webhook.MachineUpdated, 4, failed, webhook.Verdict{State: webhook.Dead}},
		"gone": {webhook.MachineUpdated, 1, webhook.Judge(410, "", noon),
			webhook.Verdict{State: webhook.Dead}},
		"a ping is tried once": {webhook.Ping, 1, failed, webhook.Verdict{State: webhook.Dead}},
		"asked to wait": {webhook.MachineUpdated, 1, webhook.Judge(429, "60", noon),
			webhook.Verdict{State: webhook.Pending, Wait: time.Minute}},
		"asked for less": {webhook.MachineUpdated, 2, webhook.Judge(503, "1", noon),
			webhook.Verdict{State: webhook.Pending, Wait: 3 * time.Second}},
	} {
		if got := s.Decide(c.kind, c.attempt, c.r, 0.5); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestEveryStatus(t *testing.T) {
	for status := 100; status < 1000; status++ {
		r := webhook.Judge(status, "30", noon)
		if r.OK() != (status/100 == 2) || r.Gone != (status == http.StatusGone) ||
			(r.RetryAfter > 0) != (status == 429 || status == 503) {
			t.Errorf("%d: %+v", status, r)
		}
		if !r.OK() && !strings.HasPrefix(r.Problem, fmt.Sprint("HTTP ", status)) {
			t.Errorf("%d is told as %q", status, r.Problem)
		}
	}
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "-1": 0, "1.5": 0, "soon": 0, "99999999999999999999": 0, "120": 2 * time.Minute, "100000": time.Hour,
		noon.Add(time.Minute).Format(http.TimeFormat): time.Minute, noon.Add(-time.Minute).Format(http.TimeFormat): 0,
		noon.Add(48 * time.Hour).Format(http.TimeFormat): time.Hour,
	} {
		if got := webhook.Judge(503, text, noon).RetryAfter; got != want {
			t.Errorf("Retry-After %q: %s, want %s", text, got, want)
		}
	}
}

func TestWhenAWebhookIsPaused(t *testing.T) {
	s := webhook.Schedule{}.Filled()
	for _, c := range []struct {
		events int
		since  time.Time
		want   bool
	}{
		{10, noon.Add(-72 * time.Hour), true}, {9, noon.Add(-72 * time.Hour), false},
		{10, noon.Add(-72*time.Hour + time.Second), false},
		{1000, time.Time{}, false},
	} {
		if got := s.ShouldPause(c.events, c.since, noon); got != c.want {
			t.Errorf("%d events since %s: %v", c.events, c.since, got)
		}
	}
}

// TestEveryPatternAndType: a pattern that is taken takes some type; one that could take none is refused.
func TestEveryPatternAndType(t *testing.T) {
	for pattern, want := range map[string]int{
		"*": 22, "site.*": 2, "site.silent": 1, "machine.*": 5, "operation.*": 5, "m*": 5, "rollout.*": 10,
		"rollout.gate_closed": 1, "machine.node*": 1,
		"operation.failed": 1, "machine.updated*": 1,
		"": 0, "**": 0, "*.failed": 0, "operation.*.x": 0, "Machine.*": 0, "ping": 0, "agent.*": 0, "machine.updated ": 0,
		"machine": 0,
	} {
		n := 0
		for _, kind := range webhook.Types() {
			if webhook.Wants([]string{pattern}, kind) {
				n++
			}
		}
		if n != want || (webhook.CheckPattern(pattern) == nil) != (want > 0) {
			t.Errorf("%q takes %d types, want %d; %v", pattern, n, want, webhook.CheckPattern(pattern))
		}
		if want > 0 && webhook.WantsMachines([]string{pattern}) != (pattern[0] == 'm' || pattern == "*") {
			t.Errorf("%q: machines %v", pattern, webhook.WantsMachines([]string{pattern}))
		}
		if want > 0 && webhook.WantsSites([]string{pattern}) != (pattern[0] == 's' || pattern == "*") {
			t.Errorf("%q: sites %v", pattern, webhook.WantsSites([]string{pattern}))
		}
		if want > 0 && webhook.WantsRollouts([]string{pattern}) != (pattern[0] == 'r' || pattern == "*") {
			t.Errorf("%q: rollouts %v", pattern, webhook.WantsRollouts([]string{pattern}))
		}
	}
	for _, kind := range webhook.Types() {
		if !webhook.Wants(nil, kind) || webhook.Wants([]string{"operation.failed"},
			kind) != (kind == webhook.OperationFailed) {
			t.Errorf("%s", kind)
		}
	}
	if !webhook.WantsRollouts(nil) || !webhook.WantsMachines(nil) ||
		webhook.WantsMachines([]string{"operation.*", "operation.failed"}) || len(webhook.OperationKinds()) != 5 {
		t.Error("the kinds of events that are read")
	}
}

// TestSignatures are those of the public library, for one secret and for several.
func TestSignatures(t *testing.T) {
	body := []byte(`{"id":"evt-1"}`)
	secrets := []webhook.Secret{webhook.NewSecret(), webhook.NewSecret(), webhook.NewSecret()}
	h := http.Header{}
	h.Set(webhook.HeaderID, "evt-1")
	h.Set(webhook.HeaderTimestamp, fmt.Sprint(time.Now().Unix()))
	h.Set(webhook.HeaderSignature, webhook.Sign(secrets[:2], "evt-1", time.Now(), body))
	for i, s := range secrets {
		lib, err := standardwebhooks.NewWebhook(s.Shown())
		if err != nil {
			t.Fatal(err)
		}
		if err := lib.Verify(body, h); (err == nil) != (i < 2) {
			t.Errorf("secret %d: %v", i, err)
		}
	}
	if s := secrets[0]; strings.Contains(fmt.Sprintf("%v %+v %#v %s", s, s, s, s), s.Shown()[6:]) || len(s) < 24 {
		t.Error("a secret prints itself, or is too short")
	}
}

// TestBodiesAreCloudEvents, as the SDK reads them; pings too.
func TestBodiesAreCloudEvents(t *testing.T) {
	m := &pb.Machine{MachineId: "m-1", Version: 12, Labels: map[string]string{"a": "<&>"}}
	for _, e := range []webhook.Event{
		{ID: "evt-1", Type: webhook.MachinePhaseChanged, Subject: "m-1", MachineID: "m-1",
			Time: noon.Add(120 * time.Millisecond), From: "READY", To: "MAINTENANCE", Data: m},
		{ID: "evt-2", Type: webhook.Ping, Subject: "wh-1", Time: noon},
	} {
		raw, err := webhook.Body("/test", e)
		if err != nil {
			t.Fatal(err)
		}
		got := cloudevents.NewEvent()
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		if err := got.Validate(); err != nil || got.ID() != e.ID || got.Type() != e.Type || got.Subject() != e.Subject ||
			got.Source() != "/test" || !got.Time().Equal(e.Time) {
			t.Errorf("%v: %v", err, got)
		}
		if e.Data == nil {
			if string(got.Data()) != "{}" || len(got.Extensions()) != 0 {
				t.Errorf("a ping says %s %v", got.Data(), got.Extensions())
			}
			continue
		}
		var back pb.Machine
		if err := protojson.Unmarshal(got.Data(), &back); err != nil || !proto.Equal(&back, m) {
			t.Errorf("data %s: %v", got.Data(), err)
		}
		if x := got.Extensions(); x["machineid"] != "m-1" || x["fromvalue"] != "READY" || x["tovalue"] != "MAINTENANCE" {
			t.Errorf("extensions %v", x)
		}
	}
}
