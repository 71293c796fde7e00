package main

// classes are the faults that show what is missing without a protection. Other bugs are looked for with all faults.
var classes = map[string]string{
	"foreign-result":   "lie-agent",
	"ungranted-result": "lie-agent",
	"asked-boot":       "lie-agent",
	"late-claim":       "lie-agent",
	"fence":            "lie-agent",
	"superseded":       "clone-agent",
	"boot-hardware":    "elsewhere-agent",
	"clone-hardware":   "elsewhere-agent",
	"memory-numbers":   "restore-agent,rollback-agent",
	"event-number":     "cut-agent,flap-agent,kill-agent",
	"window-clock":     "suspend-agent",
	"grant-window":     "suspend-agent",
	"shared-time":      "step-controller",
	"expiry-clock":     "step-agent",
	"known-time":       "step-agent,kill-agent",
}
