package ssh_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/provider/ssh"
	"github.com/ingot-metal/ingot/agent/provider/ssh/sshtest"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

const patience = 20 * time.Second

func target(s *sshtest.Server, keys ...string) ssh.Target {
	return ssh.Target{Endpoint: s.Endpoint, HostKeys: keys, Base: s.Base}
}

func login(s *sshtest.Server) ssh.Credentials {
	return ssh.Credentials{Username: s.Username, PrivateKey: s.PrivateKey}
}

func dial(t *testing.T, s *sshtest.Server) *ssh.Client {
	t.Helper()
	c, err := ssh.Dial(t.Context(), target(s, s.HostKey), login(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func script(id, text string, args ...string) ssh.Run {
	return ssh.Run{ID: id, Script: []byte(text), Args: args, Interpreter: "/bin/sh", Limit: time.Minute}
}

func begin(t *testing.T, c *ssh.Client, r ssh.Run) {
	t.Helper()
	if err := c.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, c *ssh.Client, id string, want func(ssh.Status) bool) ssh.Status {
	t.Helper()
	var s ssh.Status
	testkit.Eventually(t, patience, func() bool {
		var err error
		if s, err = c.Status(context.Background(), id); err != nil {
			t.Fatal(err)
		}
		return want(s)
	}, "the run is not as it should be")
	return s
}

func ended(s ssh.Status) bool { return s.State == ssh.Ended }

func output(t *testing.T, c *ssh.Client, id, stream string) string {
	t.Helper()
	all := ""
	for {
		b, err := c.Read(t.Context(), id, stream, int64(len(all)))
		if err != nil {
			t.Fatal(err)
		}
		if len(b) == 0 {
			return all
		}
		all += string(b)
	}
}

func TestOnlyPinnedHostKeysAreTrusted(t *testing.T) {
	s := sshtest.Start(t)
	_, other := sshtest.Key(t)
	stranger, _ := sshtest.Key(t)
	otherLine := other.Type() + " " + base64Of(other.Marshal())
	for name, c := range map[string]struct {
		keys   []string
		key    []byte
		reason string
	}{
		"the key":                   {[]string{s.HostKey}, s.PrivateKey, ""},
		"its fingerprint":           {[]string{s.Fingerprint}, s.PrivateKey, ""},
		"one of two":                {[]string{otherLine, s.HostKey}, s.PrivateKey, ""},
		"none":                      {nil, s.PrivateKey, "SSH_HOST_KEY_UNKNOWN"},
		"another key":               {[]string{otherLine}, s.PrivateKey, "SSH_HOST_KEY_MISMATCH"},
		"another fingerprint":       {[]string{"SHA256:" + strings.Repeat("A", 43)}, s.PrivateKey, "SSH_HOST_KEY_MISMATCH"},
		"a type that it has no key": {[]string{rsaLine}, s.PrivateKey, "SSH_HOST_KEY_MISMATCH"},
		"rubbish":                   {[]string{"rubbish"}, s.PrivateKey, "INVALID_FIELD"},
		"a client that is unknown":  {[]string{s.HostKey}, stranger, "SSH_AUTH_FAILED"},
		"a key that is none":        {[]string{s.HostKey}, []byte("none"), "SSH_AUTH_FAILED"},
	} {
		conn, err := ssh.Dial(t.Context(), target(s, c.keys...), ssh.Credentials{Username: s.Username, PrivateKey: c.key})
		if got := failure.ReasonOf(err); got != c.reason {
			t.Errorf("%s: %q (%v), want %q", name, got, err, c.reason)
		}
		if err == nil {
			if conn.Fingerprint() != s.Fingerprint {
				t.Errorf("%s: fingerprint %s", name, conn.Fingerprint())
			}
			_ = conn.Close()
		}
	}
	if _, err := ssh.Dial(t.Context(), ssh.Target{Endpoint: "127.0.0.1:1", HostKeys: []string{s.HostKey}},
		login(s)); failure.ReasonOf(err) != "SSH_UNREACHABLE" {
		t.Errorf("nobody listens: %v", err)
	}
}

// hostile are arguments that a shell would make something of.
func hostile() []string {
	all := make([]byte, 0, 255)
	for b := 1; b < 256; b++ {
		all = append(all, byte(b))
	}
	return []string{
		"", " ", "  two  blanks ", "'", `"`, `'"'"'`, "$(touch pwned)", "`touch pwned`", "; touch pwned", "&& touch pwned",
		"| cat", "> pwned",
		"${HOME}", "$1", "*", "~", "-n", "--", "%s%n", `\`, `\\`, `\0101`, `\c`, "a\nb", "\n", "\n\n", "a\n", "\r\n", "\t",
		"ünïcödé ☃ 日本", "!!", "#", "=",
		string(all), strings.Repeat("x", ssh.MaxArg), "last",
	}
}

func TestArgumentsArriveAsTheyAre(t *testing.T) {
	s := sshtest.Start(t)
	c := dial(t, s)
	out := t.TempDir()
	args := append([]string{out}, hostile()...)
	begin(t, c,
		script("cmd-args", `out=$1; shift; i=0; for a do printf %s "$a" >"$out/$i"; i=$((i+1)); done; echo $# "$0"`, args...))
	if got := until(t, c, "cmd-args", ended); got.Code != 0 || got.Left {
		t.Fatalf("%+v: %s", got, output(t, c, "cmd-args", "stderr"))
	}
	for i, want := range hostile() {
		got, err := os.ReadFile(filepath.Join(out, fmt.Sprint(i)))
		if err != nil || string(got) != want {
			t.Errorf("argument %d: %.60q, want %.60q (%v)", i, got, want, err)
		}
	}
	if got, want := output(t, c, "cmd-args", "stdout"),
		fmt.Sprintf("%d %s/cmd-args/script\n", len(hostile()), s.Base); got != want {
		t.Errorf("argc and script: %q, want %q", got, want)
	}
	for _, dir := range []string{s.Base, out, "/"} {
		if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
			t.Error("an argument was executed")
		}
	}
}

func TestArgumentsThatCannotBe(t *testing.T) {
	s := sshtest.Start(t)
	c := dial(t, s)
	for name, args := range map[string][]string{
		"NUL": {"a\x00b"}, "too long": {strings.Repeat("x", ssh.MaxArg+1)}, "too many": make([]string, ssh.MaxArgs+1),
		"too much": {strings.Repeat("x", ssh.MaxArg), strings.Repeat("x", ssh.MaxArg), strings.Repeat("x", ssh.MaxArg)},
	} {
		if err := c.Put(t.Context(), script("cmd-bad", "true", args...)); failure.ReasonOf(err) != "INVALID_FIELD" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, id := range []string{"", "..", "a/b", "a b", "a;b", "$(id)"} {
		if err := c.Put(t.Context(), script(id, "true")); err == nil {
			t.Errorf("a run may be called %q", id)
		}
	}
	if left, err := os.ReadDir(s.Base); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestExitCodesAndStreams(t *testing.T) {
	s := sshtest.Start(t)
	c := dial(t, s)
	for code, text := range map[int]string{
		0: "echo out; echo err >&2", 1: "exit 1", 42: "exit 42", 127: "exec no-such-program", 143: "kill -TERM $$",
	} {
		id := fmt.Sprintf("cmd-%d", code)
		begin(t, c, script(id, text))
		if got := until(t, c, id, ended); got.Code != code || got.TimedOut || got.Killed || !got.Begun {
			t.Errorf("%q: %+v, want code %d", text, got, code)
		}
	}
	if out, err := output(t, c, "cmd-0", "stdout"), output(t, c, "cmd-0", "stderr"); out != "out\n" || err != "err\n" {
		t.Errorf("stdout %q, stderr %q", out, err)
	}
	if err := c.Forget(t.Context(), "cmd-42"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Status(t.Context(), "cmd-42"); err != nil || got.State != ssh.Ended || got.Code != 42 {
		t.Errorf("after it was forgotten: %+v %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(s.Base, "cmd-42", "script")); err == nil {
		t.Error("the script is still there")
	}
	if got, err := c.Status(t.Context(), "cmd-never"); err != nil || got.State != ssh.Absent {
		t.Errorf("a run that never was: %+v %v", got, err)
	}
	r := script("cmd-interp", "true")
	r.Interpreter = "/no/such"
	if err := c.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context(), r); failure.ReasonOf(err) != "EXECUTION_FAILED" {
		t.Errorf("an interpreter that is not there: %v", err)
	}
	if got, err := c.Status(t.Context(), "cmd-interp"); err != nil || got.State != ssh.Absent {
		t.Errorf("without an interpreter: %+v %v", got, err)
	}
}

func TestARunStartsOnceHoweverOftenItIsAskedFor(t *testing.T) {
	s := sshtest.Start(t)
	count := filepath.Join(t.TempDir(), "count")
	r := script("cmd-once", `echo ran >>"$1"; sleep 1`, count)
	if err := dial(t, s).Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 20)
	for range cap(errs) {
		c := dial(t, s)
		go func() { errs <- c.Start(context.Background(), r) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	c := dial(t, s)
	until(t, c, r.ID, ended)
	again := script("cmd-once", `echo other >>"$1"`, count)
	begin(t, c, again) // after its end, with another script
	if got, err := os.ReadFile(count); err != nil || string(got) != "ran\n" {
		t.Errorf("it ran as %q (%v)", got, err)
	}
}

func TestMuchOutputIsBounded(t *testing.T) {
	s := sshtest.Start(t)
	c := dial(t, s)
	begin(t, c, script("cmd-much", "head -c 10485760 /dev/zero | tr '\\0' x; head -c 3 /dev/zero >&2"))
	got := until(t, c, "cmd-much", ended)
	if got.Code != 0 || got.Stdout.Kept != ssh.Kept || got.Stdout.More != 10<<20-ssh.Kept ||
		got.Stderr != (ssh.Stream{Kept: 3}) {
		t.Errorf("%+v", got)
	}
	if out := output(t, c, "cmd-much", "stdout"); len(out) != ssh.Kept || strings.Trim(out, "x") != "" {
		t.Errorf("%d bytes can be read", len(out))
	}
}

// stubborn ignores TERM, and so does its child.
const stubborn = `trap '' TERM; sleep 300 & echo $$ $! >"$1"; wait; wait; sleep 300`

// alive reports whether a process runs, not counting one that was not waited for.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func pids(t *testing.T, file string) []string {
	t.Helper()
	var out []string
	testkit.Eventually(t, patience, func() bool {
		b, err := os.ReadFile(file)
		out = strings.Fields(string(b))
		return err == nil && len(out) == 2
	}, "the script says nothing")
	return out
}

func TestKillEndsTheWholeGroup(t *testing.T) {
	s := sshtest.Start(t)
	c := dial(t, s)
	file := filepath.Join(t.TempDir(), "pids")
	begin(t, c, script("cmd-kill", stubborn, file))
	all := pids(t, file)
	if err := c.Kill(t.Context(), "cmd-kill"); err != nil {
		t.Fatal(err)
	}
	if got := until(t, c, "cmd-kill", ended); !got.Killed || got.Left || got.Code < 128 {
		t.Errorf("%+v", got)
	}
	for _, pid := range all {
		if alive(pid) {
			t.Errorf("process %s is alive", pid)
		}
	}
	if err := c.Kill(t.Context(), "cmd-kill"); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestTheMachineEndsARunByItself(t *testing.T) {
	s := sshtest.Start(t)
	c := dial(t, s)
	file := filepath.Join(t.TempDir(), "pids")
	r := script("cmd-limit", stubborn, file)
	r.Limit = time.Second
	begin(t, c, r)
	all := pids(t, file)
	_ = c.Close() // the peer is gone
	if got := until(t, dial(t, s), "cmd-limit", ended); !got.TimedOut || got.Left {
		t.Errorf("%+v", got)
	}
	for _, pid := range all {
		if alive(pid) {
			t.Errorf("process %s is alive", pid)
		}
	}
}

func TestARunOutlivesItsConnection(t *testing.T) {
	s := sshtest.Start(t)
	p := sshtest.NewProxy(t, s.Endpoint)
	tg := target(s, s.Fingerprint)
	tg.Endpoint = p.Endpoint
	c, err := ssh.Dial(t.Context(), tg, login(s))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it is cut below
	gate := filepath.Join(t.TempDir(), "gate")
	begin(t, c, script("cmd-cut", `while [ ! -e "$1" ]; do sleep 0.1; done; echo through; exit 7`, gate))
	p.Cut(false)
	if _, err := c.Status(t.Context(), "cmd-cut"); !ssh.Cut(err) {
		t.Fatalf("after the cut: %v", err)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again := dial(t, s)
	if got := until(t, again, "cmd-cut", ended); got.Code != 7 {
		t.Errorf("%+v", got)
	}
	if out := output(t, again, "cmd-cut", "stdout"); out != "through\n" {
		t.Errorf("it said %q", out)
	}
}

func TestAMachineThatWasStartedAgainHasNoRuns(t *testing.T) {
	s := sshtest.Start(t)
	c := dial(t, s)
	begin(t, c, script("cmd-boot", "sleep 300"))
	until(t, c, "cmd-boot", func(st ssh.Status) bool { return st.State == ssh.Running && st.Begun })
	boot := filepath.Join(s.Base, "cmd-boot", "boot")
	this, err := os.ReadFile(boot)
	if err != nil {
		t.Fatal(err)
	}
	for _, c2 := range []struct {
		id   string
		want ssh.State
	}{{"another", ssh.Rebooted}, {string(this), ssh.Running}} {
		if err := os.WriteFile(boot, []byte(c2.id), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Status(t.Context(), "cmd-boot"); err != nil || got.State != c2.want {
			t.Errorf("%+v %v, want %s", got, err, c2.want)
		}
	}
	if err := c.Kill(t.Context(), "cmd-boot"); err != nil {
		t.Fatal(err)
	}
}
