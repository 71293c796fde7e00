package disk_test

import (
	"errors"
	"testing"

	"github.com/ingot-metal/ingot/internal/disk"
)

func TestDataDisksAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	list, err := disk.ParseDataDisks([]string{"/srv serial=S1", " /var/lib/data-1   size>=1TiB, model=X* "})
	if err != nil || len(list) != 2 || list[0].Mount != "/srv" || list[1].Rule.String() != "size>=1TiB,model=X*" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, bad := range [][]string{
		{""}, {"serial=S1"}, {"/srv"}, {"/srv colour=red"}, {"srv serial=S1"}, {"/ serial=S1"}, {"/srv/ serial=S1"},
		{"/srv/../etc serial=S1"}, {"/etc/x serial=S1"}, {"/var/lib/ingot serial=S1"}, {"/var serial=S1"},
		{"/a-path-that-is-much-too-long-for-a-name serial=S1"}, {"/s$v serial=S1"},
		{"/srv serial=S1", "/srv serial=S2"}, {"/srv/a serial=S1", "/srv serial=S2"},
	} {
		if got, err := disk.ParseDataDisks(bad); !errors.As(err, new(*disk.RuleError)) {
			t.Errorf("%q is read as %+v, %v", bad, got, err)
		}
	}
}
