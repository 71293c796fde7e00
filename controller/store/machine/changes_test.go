package machine

import (
	"maps"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	before := &baremetalv1.Machine{Labels: map[string]string{"team": "a", "gone": "x", "same": "s"},
		Spec: &baremetalv1.MachineSpec{Site: "berlin", MacAddresses: []string{"m1", "m2"}, Rack: "r1"}}
	after := &baremetalv1.Machine{Labels: map[string]string{"team": "b", "new": "y", "same": "s"},
		Spec: &baremetalv1.MachineSpec{Site: "paris", MacAddresses: []string{"m1", "m3"}, Rack: "r1",
			BmcCredentialsRef: strings.Repeat("c", mostAudited+1)}}
	got := changes(before, after)
	if digest := got["spec.bmc_credentials_ref.to"]; !strings.HasPrefix(digest, "sha256:") || len(digest) != 71 {
		t.Errorf("a long value is %q", digest)
	}
	delete(got, "spec.bmc_credentials_ref.to")
	want := map[string]string{
		"labels.team.from": "a", "labels.team.to": "b", "labels.gone.from": "x", "labels.gone.to": "",
		"labels.new.from": "", "labels.new.to": "y", "spec.site.from": "berlin", "spec.site.to": "paris",
		"spec.mac_addresses.from": "m1,m2", "spec.mac_addresses.to": "m1,m3", "spec.bmc_credentials_ref.from": "",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := changes(before, before); len(got) > 0 {
		t.Errorf("no change: %v", got)
	}
}
