package gateway

import "testing"

// TestBodiesShareTheirRoom: requests that are being read hold no more bytes together than there is room for. A body of
// unknown length counts as the largest.
func TestBodiesShareTheirRoom(t *testing.T) {
	t.Parallel()
	g := &Gateway{cfg: Config{BodyBytes: 1000, MaxBody: 600}}
	release, refusal := g.bodyRoom(-1)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if _, refusal := g.bodyRoom(500); refusal == nil || refusal.Reason != reasonOverloaded || refusal.RetryAfter <= 0 {
		t.Errorf("beyond the room: %v", refusal)
	}
	if _, refusal := g.bodyRoom(400); refusal != nil {
		t.Errorf("within it: %v", refusal)
	}
	release()
	if _, refusal := g.bodyRoom(500); refusal != nil {
		t.Errorf("after one has ended: %v", refusal)
	}
}
