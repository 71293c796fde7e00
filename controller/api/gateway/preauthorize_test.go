package gateway_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/api/gateway"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TestABodyIsReadAfterItsToken: a request without a known token is answered while its body has not been sent.
func TestABodyIsReadAfterItsToken(t *testing.T) {
	var asked string
	r := newRigWith(t, gateway.Config{PreAuthorize: func(_ context.Context, method string, authorization []string) error {
		asked = method
		if len(authorization) == 1 && authorization[0] == "Bearer known" {
			return nil
		}
		return failure.Unauthenticated("BEARER_TOKEN_INVALID", "the token is not known")
	}})
	body, more := io.Pipe()
	defer more.Close()
	req := r.request("POST", "/api/v1/machines", "")
	req.Body, req.ContentLength = body, 1<<20
	req.Header.Set("Content-Type", "application/json")
	code, answer := r.do(req)
	if code != http.StatusUnauthorized || !strings.Contains(string(answer), "BEARER_TOKEN_INVALID") {
		t.Errorf("%d %s", code, answer)
	}
	if asked != "/baremetal.v1.MachineService/RegisterMachine" {
		t.Errorf("the token was asked for %q", asked)
	}
}
