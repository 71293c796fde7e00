package cli

import (
	"strings"
	"testing"
)

func TestRolloutCommands(t *testing.T) {
	digest := strings.Repeat("5f", 32)
	golden(t, "rollout", fleet,
		"rollout preview --filter site=berlin --type REPAVE --image ubuntu-2204 --canary 1 --percents 50,100 "+
			"--max-in-flight 3 --domain label:rack --max-failures 2 --soak 10m",
		"rollout preview --filter site=berlin --type REBOOT -o name",
		"rollout preview --type REBOOT",
		"rollout preview -f testdata/rollout.yaml --max-in-flight 9 -o name",
		"rollout preview --filter site=berlin --soak soon",
		"rollout create --filter site=berlin --type REPAVE --digest "+digest+" --request-id r-1",
		"rollout create --filter site=berlin --type REPAVE --digest "+digest+" --request-id r-1 --require-approval",
		"rollout create --filter site=berlin --type REPAVE --digest old --request-id r-1",
		"rollout create --filter site=berlin --type REPAVE",
		"rollout create --filter site=berlin --type REBOOT --dry-run -o name",
		"rollout get ro-1",
		"rollout get ro-2",
		"rollout list",
		"rollout list --filter state=RUNNING -o name",
		"rollout machines ro-1 --filter wave=2",
		"rollout machines ro-1 -o name",
		"rollout approve ro-1 --digest "+digest,
		"rollout approve ro-1 --digest mine",
		"rollout pause ro-1",
		"rollout resume ro-1 -o name",
		"rollout cancel ro-1 --operations",
		"rollout watch ro-1",
		"rollout watch ro-1 -o name",
		"rollout watch ro-2",
		"__complete rollout get ''",
	)
}
