package health

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// TestANewCertificateEndsNotSoon: one of a week, which is the default, had each agent that was away for a moment in the
// list of certificates that end.
func TestANewCertificateEndsNotSoon(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	for _, c := range []struct {
		lifetime, left time.Duration
		want           bool
	}{
		{7 * day, 7*day - time.Minute, false},
		{7 * day, 3 * day, false}, // not renewed yet
		{7 * day, 2 * day, true},
		{90 * day, 20 * day, false},
		{90 * day, 6 * day, true},
		{7 * day, -time.Minute, false}, // it has ended
	} {
		end := now.Add(c.left)
		agent := &pb.Agent{Certs: []*pb.AgentCert{
			{NotBefore: timestamppb.New(end.Add(-c.lifetime)), NotAfter: timestamppb.New(end)},
			{NotAfter: timestamppb.New(end.Add(day)), RevokedAt: timestamppb.New(now)},
		}}
		if got := endsSoon(agent, now); got != c.want {
			t.Errorf("%v left of %v: %v", c.left, c.lifetime, got)
		}
	}
	if none := (&pb.Agent{}); endsSoon(none, now) || !certificateEnd(none).IsZero() {
		t.Error("an agent without a certificate has one that ends")
	}
}
