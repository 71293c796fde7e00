package delivery_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/ingot-metal/ingot/controller/secret"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/ids"
)

// rotate makes a new secret and returns it as the receiver has it.
func (r *rig) rotate(id string, overlap time.Duration) string {
	r.t.Helper()
	plain, name := webhook.NewSecret(), ids.New(ids.WebhookSecret)
	r.change(id,
		webhookstore.WebhookChange{NewSecret: &webhookstore.SealedSecret{ID: name,
			Sealed: r.box.SealWebhook(id, name, plain)}, Overlap: overlap})
	return plain.Shown()
}

// TestSecretsOverlap: between a rotation and the end of the old secret a receiver with either is served; then the new
// one alone signs.
func TestSecretsOverlap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rec := newReceiver(t, nil)
	id, first := r.subscribe(rec.URL, webhook.MachineRegistered)
	r.run()
	second := r.rotate(id, time.Hour)
	third := r.rotate(id, time.Hour)
	if w := r.webhook(id); len(w.GetSecrets()) != 3 || w.GetSecrets()[0].GetExpiresAt() != nil ||
		w.GetSecrets()[2].GetExpiresAt() == nil {
		t.Errorf("secrets %v", w.GetSecrets())
	}
	r.ping(id)
	fourth := r.rotate(id, 0)
	r.ping(id)
	got := rec.got()
	if len(got) != 2 {
		t.Fatalf("%d requests", len(got))
	}
	for i, keys := range []map[string]bool{
		{first: true, second: true, third: true, fourth: false},
		{first: false, second: false, third: false, fourth: true},
	} {
		for key, want := range keys {
			lib, err := standardwebhooks.NewWebhook(key)
			if err != nil {
				t.Fatal(err)
			}
			if err := lib.Verify(got[i].body, got[i].header); (err == nil) != want {
				t.Errorf("request %d: %v, want %v", i, err, want)
			}
		}
	}
	if w := r.webhook(id); len(w.GetSecrets()) != 1 || w.GetSecret() != "" {
		t.Errorf("after the overlap: %v", w)
	}
	r.audited(id, "CREATE_WEBHOOK", "ROTATE_WEBHOOK_SECRET", "ROTATE_WEBHOOK_SECRET", "TEST_WEBHOOK",
		"ROTATE_WEBHOOK_SECRET", "TEST_WEBHOOK")
}

// TestALostKeySendsNothingUnsigned: without the key that sealed the secrets, tries fail and say so; a rotation cures
// it.
func TestALostKeySendsNothingUnsigned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rec := newReceiver(t, nil)
	id, _ := r.subscribe(rec.URL)
	other, err := secret.New(bytes.Repeat([]byte{8}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	r.box = other
	r.run()
	if d := r.ping(id); d.GetState() != webhook.Dead || !strings.Contains(d.GetLastError(), "rotate") ||
		len(rec.got()) != 0 {
		t.Errorf("%v, %d requests", d, len(rec.got()))
	}
	r.rotate(id, time.Hour)
	if d := r.ping(id); d.GetState() != webhook.Delivered {
		t.Errorf("after a rotation: %v", d)
	}
}
