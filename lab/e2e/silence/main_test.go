package silence

import (
	"testing"

	"github.com/ingot-metal/ingot/lab/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
