package obs

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestTheJournalKnowsWhatIsUrgent: lines to the journal have their priority in front, and others have none.
func TestTheJournalKnowsWhatIsUrgent(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		for journal, want := range map[bool][]string{true: {"<7>", "<6>", "<4>", "<3>"}, false: {"", "", "", ""}} {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			info, err := w.Stat()
			if err != nil {
				t.Fatal(err)
			}
			st, _ := info.Sys().(*syscall.Stat_t)
			stream := fmt.Sprintf("%d:%d", st.Dev, st.Ino)
			if !journal {
				stream += "1"
			}
			t.Setenv("JOURNAL_STREAM", stream)
			log, err := NewLogger(w, LogConfig{Level: "debug", Format: format})
			if err != nil {
				t.Fatal(err)
			}
			log = log.With("token", "secret-of-mine").WithGroup("g")
			log.Debug("a")
			log.Info("b")
			log.Warn("c")
			log.Error("d")
			w.Close()
			raw, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			begin := map[string]string{"text": "time=", "json": "{"}[format]
			lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
			if len(lines) != len(want) || strings.Contains(string(raw), "secret-of-mine") {
				t.Fatalf("%s: %s", format, raw)
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, want[i]+begin) {
					t.Errorf("%s, journal %t: %s", format, journal, line)
				}
			}
		}
	}
}
