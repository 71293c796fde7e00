// Package receiver takes the webhooks of a system.
package receiver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// Receiver takes webhooks and keeps them. It fails some first tries, so that events are sent again.
type Receiver struct {
	server   *http.Server
	listener net.Listener

	mu     sync.Mutex
	verify *standardwebhooks.Webhook
	told   []arrival
	tried  map[string]bool
	n      int
}

type arrival struct {
	check.Told
	at time.Time
}

// limit bounds the headers of a request, and the end.
const limit = 1500 * time.Millisecond

// failEvery is of how many events one is failed at its first try.
const failEvery = 7

// maxEvent bounds one event, in bytes.
const maxEvent = 1 << 20

// Open listens on loopback.
func Open() (*Receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the receiver of webhooks: %w", err)
	}
	h := &Receiver{listener: l, tried: map[string]bool{}}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: limit}
	task.Background("receive webhooks", func() { _ = h.server.Serve(l) }) // it ends with close
	return h, nil
}

// URL is the address that takes webhooks.
func (h *Receiver) URL() string { return "http://" + h.listener.Addr().String() + "/hook" }

// Close ends it.
func (h *Receiver) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := h.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return h.server.Close()
}

// Use sets the secret by which events are signed.
func (h *Receiver) Use(secret string) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.verify, err = standardwebhooks.NewWebhook(secret); err != nil {
		return fmt.Errorf("use the secret of a webhook: %w", err)
	}
	return nil
}

// event is what a webhook carries, as far as it is judged.
type event struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Data struct {
		OperationID string `json:"operation_id"`
		Phase       string `json:"phase"`
	} `json:"data"`
}

// ServeHTTP takes one event.
func (h *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvent))
	var e event
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := check.Told{
		ID: r.Header.Get("webhook-id"), Type: e.Type, Operation: e.Data.OperationID, Phase: e.Data.Phase,
		Signed: h.verify != nil && h.verify.Verify(body, r.Header) == nil && r.Header.Get("webhook-id") == e.ID,
	}
	h.n++
	t.Failed = h.n%failEvery == 0 && !h.tried[t.ID]
	h.tried[t.ID] = true
	h.told = append(h.told, arrival{t, time.Now()})
	if t.Failed {
		http.Error(w, "to be tried again", http.StatusInternalServerError)
	}
}

// About returns what was received about operations, with times since begun.
func (h *Receiver) About(operations []*baremetalv1.Operation, begun time.Time) (out []check.Told) {
	ours := map[string]bool{}
	for _, o := range operations {
		ours[o.GetOperationId()] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.told {
		if ours[t.Operation] {
			t.At = t.at.Sub(begun)
			out = append(out, t.Told)
		}
	}
	return out
}

// Forget drops what was received so far.
func (h *Receiver) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told, h.tried = nil, map[string]bool{}
}
