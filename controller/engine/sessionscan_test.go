package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/session"
)

// Every session has its turn, each once in a round, and all of them at once where a revocation was announced.
func TestEveryCertificateHasItsTurn(t *testing.T) {
	t.Parallel()
	const n = 3*revocationsAtOnce + 1
	var all []*session.Session
	for i := range n {
		id := fmt.Sprintf("a-%d", i)
		all = append(all, session.New(t.Context(), session.Peer{AgentID: id, Fingerprint: "fp-" + id}, time.Unix(0, 0)))
	}
	var r revocations
	if got := len(r.certificates(all, true)); got != n {
		t.Errorf("%d of %d were looked at", got, n)
	}
	seen := map[string]int{}
	for range n/revocationsAtOnce + 1 {
		part := r.certificates(all, false)
		if len(part) > 2*revocationsAtOnce {
			t.Errorf("%d at once", len(part))
		}
		for _, fp := range part {
			seen[fp]++
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d had their turn", len(seen), n)
	}
	for fp, times := range seen {
		if times != 1 {
			t.Fatalf("%s had its turn %d times", fp, times)
		}
	}
	if got := len(r.certificates(all[:100], false)); got != 100 {
		t.Errorf("of a small fleet %d were looked at", got)
	}
}
