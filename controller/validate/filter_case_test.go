package validate_test

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/validate"
)

// TestFilterReadsEnumsInAnyCase: a closed set of values is read as JSON reads enums; free text keeps its case.
func TestFilterReadsEnumsInAnyCase(t *testing.T) {
	for _, value := range []string{"READY", "ready", "Ready", "idle"} {
		got, err := validate.Filter("phase="+value+",site=Berlin", keys)
		if err != nil || join(got) != "phase=READY,site=Berlin" {
			t.Errorf("phase=%s becomes %q, %v", value, join(got), err)
		}
	}
	if _, err := validate.Filter("phase="+strings.ToLower("NEVER"), keys); err == nil {
		t.Error("a value that is none is accepted")
	}
}
