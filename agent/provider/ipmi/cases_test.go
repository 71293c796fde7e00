package ipmi

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/testkit"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

// TestCases walks the folders of testdata/cases: bmc.emu is what OpenIPMI's simulator emulates, want.json the right
// values. Sensors are kind, name, value or state, and health. A new folder is a new test.
func TestCases(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/cases/*/bmc.emu")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			t.Parallel()
			emulation, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(filepath.Dir(file), "want.json"))
			if err != nil {
				t.Fatal(err)
			}
			var want struct{ Sensors []string }
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			s, err := lab.StartIPMI(t.Context(), lab.IPMIConfig{
				Chassis: &lab.Memory{Info: lab.About{Name: "m-1"}}, Dir: testkit.TempDir(t), Emulation: string(emulation),
				Addr: netip.MustParseAddrPort("127.0.0.1:0"), User: "admin", Password: "s3cret",
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			sensors, err := open(t, s).Sensors(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range sensors {
				got = append(got, word(x))
			}
			if !slices.Equal(got, want.Sensors) {
				t.Errorf("sensors\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want.Sensors, "\n  "))
			}
		})
	}
}

func word(s provider.Sensor) string {
	said := s.State
	if !s.Stateful {
		said = fmt.Sprintf("%g %s", s.Value, s.Unit)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s: %s %s", s.Kind, s.Name, said, s.Health))
}
