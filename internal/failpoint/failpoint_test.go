package failpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/failpoint"
)

var (
	one      = failpoint.Register("test.one")
	two      = failpoint.Register("test.two")
	three    = failpoint.Register("test.three")
	scoped   = failpoint.Register("test.scoped")
	both     = failpoint.Register("test.both")
	sleeping = failpoint.Register("test.sleep")
	fromEnv  = failpoint.Register("test.env")
	childRun = "INGOT_TEST_FAILPOINT_CHILD"
)

// The test binary is its own victim for the kill tests: started with this variable it hits a failpoint five times and
// reports how far it got.
func TestMain(m *testing.M) {
	if os.Getenv(childRun) == "" {
		os.Exit(m.Run())
	}
	if err := failpoint.FromEnv(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	defer fmt.Println("deferred")
	for i := range 5 {
		if err := fromEnv.Hit(); err != nil {
			fmt.Println("error", i+1)
			continue
		}
		fmt.Println("passed", i+1)
	}
}

func child(t *testing.T, spec string) (stdout, stderr string, state *os.ProcessState) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childRun+"=1", failpoint.EnvVar+"="+spec)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState
}

func TestKillEndsARealProcessAtTheNthHit(t *testing.T) {
	t.Parallel()
	out, _, state := child(t, "test.env=kill@3")
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Fatalf("child ended with %v, want SIGKILL", state)
	}
	if out != "passed 1\npassed 2\n" {
		t.Fatalf("child printed %q", out)
	}
}

func TestErrorByEnvironment(t *testing.T) {
	t.Parallel()
	out, _, state := child(t, " test.env=error@2 ; test.one=panic;")
	if !state.Success() || out != "passed 1\nerror 2\npassed 3\npassed 4\npassed 5\ndeferred\n" {
		t.Fatalf("child: %v, printed %q", state, out)
	}
}

func TestSleepPassesAfterAWhile(t *testing.T) {
	t.Parallel()
	out, _, state := child(t, "test.env=sleep=20ms@2")
	if !state.Success() || out != "passed 1\npassed 2\npassed 3\npassed 4\npassed 5\ndeferred\n" {
		t.Fatalf("child: %v, printed %q", state, out)
	}
	for _, bad := range []string{"sleep", "sleep=soon", "kill=20ms"} {
		if _, err := failpoint.ParseAction(bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	scope := failpoint.NewScope()
	scope.Set("test.sleep", failpoint.Sleep(time.Hour))
	ctx, cancel := context.WithCancel(failpoint.With(t.Context(), scope))
	cancel()
	if err := sleeping.HitCtx(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("an hour's sleep under a context that has ended: %v", err)
	}
}

func TestEnvironmentNamesEveryMistake(t *testing.T) {
	t.Parallel()
	_, errs, state := child(t,
		"nobody.knows=kill;test.one;test.two=explode;test.env=kill@0;test.three=error;test.three=error")
	if state.ExitCode() != 2 {
		t.Fatalf("child: %v", state)
	}
	for _, want := range []string{"nobody.knows", `"test.one" is not name=action`, "explode", "kill@0",
		`"test.three" is given twice`} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is not in %q", want, errs)
		}
	}
}

func TestEnableArmsNothingWhenAnyPartIsWrong(t *testing.T) {
	t.Parallel()
	if _, err := failpoint.Enable("test.three=error;nobody.knows=error"); err == nil {
		t.Fatal("no error")
	}
	if err := three.Hit(); err != nil {
		t.Fatalf("armed all the same: %v", err)
	}
}

func TestSetAndRestore(t *testing.T) {
	t.Parallel()
	outer := failpoint.Set("test.one", failpoint.Error().At(2))
	if err := one.Hit(); err != nil {
		t.Fatalf("fired at the first hit: %v", err)
	}
	if err := one.Hit(); !errors.Is(err, failpoint.ErrInjected) || !strings.Contains(err.Error(), "test.one") {
		t.Fatalf("second hit = %v", err)
	}
	if err := one.Hit(); err != nil {
		t.Fatalf("fired again: %v", err)
	}
	inner := failpoint.Set("test.one", failpoint.Error())
	if one.Hit() == nil {
		t.Fatal("an action without @N must fire at every hit")
	}
	inner()
	outer()
	if err := one.Hit(); err != nil {
		t.Fatalf("still armed after restore: %v", err)
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	defer failpoint.Set("test.two", failpoint.Panic())()
	defer func() {
		err, ok := recover().(error)
		if !ok || !errors.Is(err, failpoint.ErrInjected) {
			t.Fatalf("recovered %v", err)
		}
	}()
	_ = two.Hit()
	t.Fatal("Hit returned")
}

func TestScopesDoNotMeet(t *testing.T) {
	t.Parallel()
	a, b := failpoint.NewScope(), failpoint.NewScope()
	actx, bctx := failpoint.With(t.Context(), a), failpoint.With(t.Context(), b)
	restore := a.Set("test.scoped", failpoint.Call(func(context.Context) error { return io.EOF }))
	if err := scoped.HitCtx(actx); !errors.Is(err, io.EOF) {
		t.Fatalf("own scope: %v", err)
	}
	for name, err := range map[string]error{
		"other scope": scoped.HitCtx(bctx),
		"no scope":    scoped.HitCtx(t.Context()),
		"plain Hit":   scoped.Hit(),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	restore()
	if err := scoped.HitCtx(actx); err != nil {
		t.Fatalf("after restore: %v", err)
	}
	if a.Hits("test.scoped") != 2 || b.Hits("test.scoped") != 1 {
		t.Fatalf("hits %d and %d, want 2 and 1", a.Hits("test.scoped"), b.Hits("test.scoped"))
	}
}

func TestScopedCodeObeysTheProcessToo(t *testing.T) {
	t.Parallel()
	defer failpoint.Set("test.both", failpoint.Error())()
	if err := both.HitCtx(failpoint.With(t.Context(), failpoint.NewScope())); !errors.Is(err, failpoint.ErrInjected) {
		t.Fatalf("got %v", err)
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	names := failpoint.Names()
	if !slices.IsSorted(names) || !slices.Contains(names, one.Name()) {
		t.Fatalf("Names = %v", names)
	}
	for _, bad := range []string{"test.one", "", "a=b", "a;b", "Upper"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Register(%q) did not panic", bad)
				}
			}()
			failpoint.Register(bad)
		}()
	}
}

func BenchmarkInert(b *testing.B) {
	for b.Loop() {
		_ = one.HitCtx(context.Background())
	}
}
