package inventory

import (
	"os/exec"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/filter"
)

// TestTheNextCommandSelectsTheRack: a shell reads the printed words, and the filter the value, as the rack is called.
func TestTheNextCommandSelectsTheRack(t *testing.T) {
	for _, rack := range []string{"r42", "r 9", "$(id)", "x;touch y", `Rack "4", \row`, "it's", "a,b", "10.0.0.1/24"} {
		text := selectFlag([]*pb.Machine{{Spec: &pb.MachineSpec{Rack: rack}}})
		out, err := exec.Command("sh", "-c", "printf '%s\\n' "+text).Output()
		words := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || len(words) != 2 || words[0] != "--select" {
			t.Errorf("%q: a shell reads %q, %v", text, words, err)
			continue
		}
		terms, err := filter.Parse(words[1])
		if err != nil || len(terms) != 2 || terms[0].Key != "rack" || terms[0].Values[0].Text != rack {
			t.Errorf("%q: the filter is %v, %v", text, terms, err)
		}
	}
}
