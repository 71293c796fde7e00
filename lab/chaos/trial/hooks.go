package trial

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

// receiver takes webhooks and keeps them. It fails some first tries, so that events are sent again.
type receiver struct {
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

// failEvery is of how many events one is failed at its first try.
const failEvery = 7

// maxEvent bounds one event, in bytes.
const maxEvent = 1 << 20

func openReceiver() (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the receiver of webhooks: %w", err)
	}
	h := &receiver{listener: l, tried: map[string]bool{}}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: callLimit}
	task.Background("receive webhooks", func() { _ = h.server.Serve(l) }) // it ends with close
	return h, nil
}

func (h *receiver) url() string { return "http://" + h.listener.Addr().String() + "/hook" }

func (h *receiver) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if err := h.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return h.server.Close()
}

// use sets the secret by which events are signed.
func (h *receiver) use(secret string) (err error) {
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

func (h *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// about returns what was received about operations, with times since begun.
func (h *receiver) about(operations []*baremetalv1.Operation, begun time.Time) (out []check.Told) {
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

// forget drops what was received so far.
func (h *receiver) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told, h.tried = nil, map[string]bool{}
}
