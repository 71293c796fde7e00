package doctor

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnitsThatDoNotRun, as systemctl show of systemd 252 prints them.
func TestUnitsThatDoNotRun(t *testing.T) {
	t.Parallel()
	for show, want := range map[string]Finding{
		"Result=exit-code\nExecMainStatus=217\nMainPID=0\nLoadState=loaded\nActiveState=activating\n" +
			"SubState=auto-restart\n": {
			Level: Fail, What: "x is activating (auto-restart): exit-code, status 217/USER"},
		"Result=exit-code\nExecMainStatus=5\nMainPID=0\nLoadState=loaded\nActiveState=failed\nSubState=failed\n": {
			Level: Fail, What: "x is failed (failed): exit-code, status 5"},
		"Result=success\nExecMainStatus=0\nMainPID=0\nLoadState=loaded\nActiveState=inactive\nSubState=dead\n": {
			Level: Warn, What: "x is inactive (dead)"},
		"Result=success\nExecMainStatus=0\nMainPID=9\nLoadState=loaded\nActiveState=active\nSubState=running\n": {
			Level: OK, What: "x runs"},
	} {
		got := judgeUnit("x", parseUnit([]byte(show)))
		if got.Level != want.Level || got.What != want.What || (got.Remedy == "") != (got.Level == OK) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestAProcessWithoutACapability is named, and one with all is well.
func TestAProcessWithoutACapability(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"-net_raw": "x runs without CAP_NET_RAW", "-all": "x runs without CAP_NET_BIND_SERVICE, CAP_NET_RAW", "": "",
	} {
		args := []string{"sleep", "60"}
		if set != "" {
			args = append([]string{"setpriv", "--bounding-set", set, "--inh-caps", set}, args...)
		}
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := strconv.Itoa(cmd.Process.Pid)
		for name := ""; name != "sleep"; { // setpriv becomes it
			out, err := exec.CommandContext(t.Context(), "ps", "-o", "comm=", "-p", pid).Output()
			if err != nil {
				t.Fatal(err)
			}
			name = strings.TrimSpace(string(out))
		}
		list := checkCapabilities("x", pid, []int{unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW})
		if len(list) != 1 || (list[0].Level == OK) != (want == "") || want != "" && list[0].What != want {
			t.Errorf("%s: %+v", set, list)
		}
		_ = cmd.Process.Kill() // it sleeps, and nothing else
		_ = cmd.Wait()
	}
}
