package explain

import (
	"fmt"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// HardwareFacts names what of the hardware was other, or not read, when the machine's agent opened its newest session.
// The newest command before which the hardware was noted is compared.
func (f *Facts) HardwareFacts() []string {
	host := f.Host()
	if host == nil || host.Hardware == "" {
		return nil
	}
	var out []string
	who := host.RoleName() + " " + host.AgentID
	shown := hwid.ParseFingerprint(host.Hardware)
	if len(shown.Unread) > 0 {
		out = append(out, who+" was not permitted to read "+strings.Join(shown.Unread, ", "))
	}
	c := f.hardwareNoted(host)
	if c == nil {
		return out
	}
	v := hwid.Judge(hwid.ParseFingerprint(c.Evidence[evidence.HostHardware]), shown)
	if v.Outcome == hwid.Same {
		return out
	}
	meaning := "it counts as the same machine"
	if v.Other() {
		meaning = "other hardware used the machine's identity, and its boot proves nothing"
	}
	return append(out, fmt.Sprintf("hardware that %s has shown since command %s was granted at %s: %s; %s", who, c.ID,
		f.At(c.GrantedAt), v, meaning))
}

// hardwareNoted is the command before which the hardware was noted that the machine's agent runs on; the unresolved one
// first, then the newest.
func (f *Facts) hardwareNoted(host *Agent) *operation.Command {
	noted := func(c *operation.Command) bool {
		return c != nil && c.Evidence[evidence.HostHardware] != "" && c.Evidence[evidence.HostAgentID] == host.AgentID
	}
	if noted(f.Unresolved) {
		return f.Unresolved
	}
	for i := len(f.Commands) - 1; i >= 0; i-- {
		if c := &f.Commands[i]; noted(c) {
			return c
		}
	}
	return nil
}
