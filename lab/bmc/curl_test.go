package bmc_test

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/lab/bmc"
)

// curl, with nothing in between.
func TestCurl(t *testing.T) {
	t.Parallel()
	c := newChassis()
	r := startRedfish(t, c)
	base := "https://" + r.Addr()
	// status returns the status and the headers, in one text.
	status := func(args ...string) string {
		t.Helper()
		return run(t, "curl", append([]string{"-sk", "-o", "/dev/null", "-D", "-"}, args...)...)
	}
	auth := []string{"-u", user + ":" + password}
	system := base + "/redfish/v1/Systems/1"
	for _, tc := range []struct {
		want string
		args []string
	}{
		{" 200", []string{base + "/redfish"}},
		{" 200", []string{base + "/redfish/v1"}},
		{" 200", []string{base + "/redfish/v1/"}},
		{" 401", []string{system}},
		{" 401", []string{"-u", "admin:wrong", system}},
		{" 200", append(auth, system)},
		{" 404", append(auth, base+"/redfish/v1/Systems/2")},
		{" 404", append(auth, "-X", "DELETE", system)},
		{" 400", append(auth, "-X", "POST", "-d", `{"ResetType":"Nonsense"}`, system+"/Actions/ComputerSystem.Reset")},
		{" 400", append(auth, "-X", "POST", "-d", `{`, system+"/Actions/ComputerSystem.Reset")},
		{" 204", append(auth, "-X", "POST", "-d", `{"ResetType":"On"}`, system+"/Actions/ComputerSystem.Reset")},
		{" 412", append(auth, "-X", "PATCH", "-H", `If-Match: "old"`, "-d", `{"IndicatorLED":"Lit"}`, system)},
		{" 400",
			append(auth, "-X", "PATCH", "-d",
				`{"Boot":{"BootSourceOverrideEnabled":"Continuous","BootSourceOverrideTarget":"Pxe"}}`, system)},
		{" 400", append(auth, "-X", "PATCH", "-d", `{"Boot":{"BootSourceOverrideTarget":"Floppy"}}`, system)},
		{" 400", append(auth, "-X", "PATCH", "-d", `{"AssetTag":"x"}`, system)},
		{" 200", append(auth, "-X", "PATCH", "-d", `{"Boot":{"BootSourceOverrideTarget":"UefiHttp"}}`, system)},
	} {
		if got, _, _ := strings.Cut(status(tc.args...), "\r\n"); !strings.Contains(got, tc.want) {
			t.Errorf("curl %s: %s, want%s", strings.Join(tc.args, " "), got, tc.want)
		}
	}
	power(t, c, bmc.On)
	once(t, c, bmc.BootHTTP)
	tag := header(status(append(auth, system)...), "ETag")
	if got := status(append(auth, "-H", "If-None-Match: "+tag, system)...); !strings.Contains(got, " 304") {
		t.Errorf("with its ETag %s: %s", tag, got)
	}
	if got := status(append(auth, "-X", "PATCH", "-H", "If-Match: "+tag, "-d", `{"IndicatorLED":"Lit"}`,
		system)...); !strings.Contains(got, " 200") {
		t.Errorf("with its ETag %s: %s", tag, got)
	}
	session := status("-X", "POST", "-d", `{"UserName":"`+user+`","Password":"`+password+`"}`, base+
		"/redfish/v1/SessionService/Sessions")
	token := "X-Auth-Token: " + header(session, "X-Auth-Token")
	if got := status("-H", token, system); !strings.Contains(got, " 200") {
		t.Errorf("with a session: %s", got)
	}
	if got := status("-X", "DELETE", "-H", token, base+header(session, "Location")); !strings.Contains(got, " 204") {
		t.Errorf("end the session: %s", got)
	}
	if got := status("-H", token, system); !strings.Contains(got, " 401") {
		t.Errorf("with a session that has ended: %s", got)
	}
}

func header(answer, name string) string {
	for line := range strings.SplitSeq(answer, "\r\n") {
		if value, ok := strings.CutPrefix(strings.ToLower(line), strings.ToLower(name)+": "); ok {
			return line[len(line)-len(value):]
		}
	}
	return ""
}

func TestAccountLocks(t *testing.T) {
	t.Parallel()
	r := startRedfish(t, newChassis())
	r.Misbehave(bmc.Faults{LockAfter: 2})
	system := "https://" + r.Addr() + "/redfish/v1/Systems/1"
	ask := func(password string) string {
		return run(t, "curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "-u", user+":"+password, system)
	}
	if got := ask("wrong") + ask(password) + ask("wrong") + ask("wrong") + ask(password); got != "401200401401401" {
		t.Errorf("answers %s", got)
	}
	if n := r.Counts(); n.WrongPasswords != 3 || !n.Locked {
		t.Errorf("counted %+v", n)
	}
	r.SetPassword(password)
	if got := ask(password); got != "200" {
		t.Errorf("after unlocking %s", got)
	}
}
