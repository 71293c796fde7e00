package storetest

import (
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store"
)

func Verdict(t testing.TB, s *store.Store, machineID string) *baremetalv1.TimelineVerdict {
	t.Helper()
	v, err := s.Timelines.VerifyTimeline(t.Context(), machineID)
	if err != nil {
		t.Fatalf("verify %q: %v", machineID, err)
	}
	return v
}

func Intact(t testing.TB, s *store.Store, machineID string) {
	t.Helper()
	if v := Verdict(t, s, machineID); !v.GetOk() {
		t.Errorf("%q: broken at %d %s; %s", machineID, v.GetBrokenSeq(), v.GetBrokenWhy(),
			strings.Join(v.GetDifferences(), "\n"))
	}
}
