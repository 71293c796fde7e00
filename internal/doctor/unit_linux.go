package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Unit checks a unit of systemd: that it runs, and that its process has these capabilities (capabilities(7), by
// number). It finds nothing on a machine without systemd, or without the unit.
func Unit(ctx context.Context, name string, capabilities ...int) []Finding {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil
	}
	out, err := exec.CommandContext(ctx, "systemctl", "show", name,
		"--property=LoadState,ActiveState,SubState,Result,ExecMainStatus,MainPID").Output()
	if err != nil {
		return []Finding{Warning("service", name+": "+err.Error(), "systemctl status "+name)}
	}
	u := parseUnit(out)
	if u["LoadState"] == "not-found" || len(u) == 0 {
		return nil
	}
	list := []Finding{judgeUnit(name, u)}
	if pid := u["MainPID"]; pid != "" && pid != "0" && len(capabilities) > 0 {
		list = append(list, checkCapabilities(name, pid, capabilities)...)
	}
	return list
}

// parseUnit reads lines NAME=VALUE.
func parseUnit(show []byte) map[string]string {
	u := map[string]string{}
	for line := range strings.Lines(string(show)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			u[key] = value
		}
	}
	return u
}

// judgeUnit returns the finding for the properties of a unit.
func judgeUnit(name string, u map[string]string) Finding {
	state := u["ActiveState"] + " (" + u["SubState"] + ")"
	switch {
	case u["ActiveState"] == "failed" || u["SubState"] == "auto-restart":
		return Fault("service", fmt.Sprintf("%s is %s: %s, status %s%s", name, state, u["Result"], u["ExecMainStatus"],
			meaning(u["ExecMainStatus"])), "systemctl cat "+name+"; journalctl -u "+name+
			"; where a drop-in is wrong: systemctl revert "+name+" && systemctl restart "+name)
	case u["ActiveState"] != "active":
		return Warning("service", name+" is "+state, "systemctl enable --now "+name+"; journalctl -u "+name)
	}
	return Well("service", name+" runs")
}

// meaning names the exit codes by which systemd reports that it could not start a process (systemd.exec(5)).
func meaning(status string) string {
	name := map[string]string{
		"200": "CHDIR", "203": "EXEC", "216": "GROUP", "217": "USER", "218": "CAPABILITIES", "226": "NAMESPACE",
		"238": "STATE_DIRECTORY", "243": "CREDENTIALS",
	}[status]
	if name == "" {
		return ""
	}
	return "/" + name
}

// capabilityNames of those that are asked for.
var capabilityNames = map[int]string{
	unix.CAP_NET_BIND_SERVICE: "CAP_NET_BIND_SERVICE", unix.CAP_NET_RAW: "CAP_NET_RAW",
}

func checkCapabilities(name, pid string, wanted []int) []Finding {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if errors.Is(err, os.ErrNotExist) {
		return nil // it has just ended
	}
	if err != nil {
		return []Finding{Warning("capabilities", err.Error(), "run doctor as root")}
	}
	has, err := effective(status)
	if err != nil {
		return []Finding{Warning("capabilities", "process "+pid+": "+err.Error(), "")}
	}
	var missing []string
	for _, c := range wanted {
		if has&(1<<c) == 0 {
			missing = append(missing, capabilityNames[c])
		}
	}
	if len(missing) > 0 {
		return []Finding{Fault("capabilities", name+" runs without "+strings.Join(missing, ", "),
			"systemctl revert "+name+" && systemctl restart "+name)}
	}
	return []Finding{Well("capabilities", name+" has those that it needs")}
}

// effective reads the set of effective capabilities out of /proc/PID/status.
func effective(status []byte) (uint64, error) {
	for line := range bytes.Lines(status) {
		if set, ok := bytes.CutPrefix(line, []byte("CapEff:")); ok {
			return strconv.ParseUint(string(bytes.TrimSpace(set)), 16, 64)
		}
	}
	return 0, errors.New("its status has no line CapEff")
}
