package host

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/rollback"
)

// rebootRun keeps the files of /etc on the machine's disk. It does not return in the boot that is reset.
func (r *run) rebootRun() {
	dir := filepath.Join(diskOfRuns, strconv.FormatUint(r.seed, 10))
	hosttest.Must(r.t, os.MkdirAll(filepath.Join(dir, "etc"), 0o755))
	ownFiles(r.t, filepath.Join(dir, "etc"))
	r.makeHost()
	// With blocked, nothing below /etc can be written from the middle of the change on, nor at the beginning of the
	// next boot.
	blocked := r.rand.IntN(3) == 0
	if rebooted() {
		r.afterReset(dir, blocked)
		return
	}
	startBus(r.t)
	supervise(r.t)
	r.layCables()
	r.begin()
	// What comes back with a reboot is what files say.
	hosttest.WriteFile(r.t, filepath.Join(dir, "before"), r.look())
	hosttest.WriteFile(r.t, filepath.Join(dir, "files"), r.files())
	r.others()
	if !r.reachable(r.ownAddresses()...) {
		r.t.Fatalf("the host is not reachable at the beginning:\n%s", r.look())
	}
	r.order()
	hosttest.WriteFile(r.t, filepath.Join(dir, "order.json"), hosttest.ReadFile(r.t, "/run/order.json"))
	fault := &runFault{at: time.Duration(r.rand.IntN(4000)) * time.Millisecond, strike: func(p *os.Process) {
		if blocked {
			r.readOnly()
		} else if r.rand.IntN(2) == 0 {
			_ = p.Kill() // it may have ended
		}
	}}
	hosttest.WriteFile(r.t, "/tmp/ready."+strconv.FormatUint(r.seed, 10), "")
	for {
		if _, err := os.Stat(goFile); err == nil {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	<-time.After(time.Duration(r.rand.IntN(4000)) * time.Millisecond)
	r.carryOut(fault)
	for {
		r.retry()
		<-time.After(time.Second)
	}
}

// afterReset is the next boot: first what ingot-rollback.service runs, while there is neither bus nor networkd.
func (r *run) afterReset(dir string, blocked bool) {
	before, filesBefore := hosttest.ReadFile(
		r.t,
		filepath.Join(dir, "before"),
	), hosttest.ReadFile(
		r.t,
		filepath.Join(dir, "files"),
	)
	text := hosttest.ReadFile(r.t, filepath.Join(dir, "order.json"))
	hosttest.Must(r.t, json.Unmarshal([]byte(text), &r.change))
	r.change.Before, r.change.Firewall = nil, nil // the table is gone with the kernel, and comes back with the agent
	r.tell("order " + text)
	r.layCables()
	if blocked {
		r.readOnly()
	}
	pending := r.atBoot(blocked)
	startBus(r.t)
	supervise(r.t)
	if blocked {
		<-time.After(3 * time.Second) // networkd configures what the files of the change say
		r.writable()
		_, err := r.host.RollBackPending(r.t.Context(), false) // as the agent does every ten seconds
		r.tell(fmt.Sprintf("writable again: %v", err))
	}
	for range 3 {
		if !r.retry() {
			break
		}
	}
	if !pending || !blocked { // networkd takes its time, and sends no signal when it is done
		end := time.Now().Add(20 * time.Second)
		for now := r.look(); now != before && len(r.notAsOrdered(now)) > 0 && time.Now().Before(end); now = r.look() {
			<-time.After(200 * time.Millisecond)
		}
	}
	r.judge(before, filesBefore, &runFault{})
}

// atBoot reports whether a change was pending that could not be undone yet.
func (r *run) atBoot(blocked bool) (left bool) {
	g, err := r.host.Guarded(r.t.Context())
	hosttest.Must(r.t, err)
	state := rollback.GuardState("none")
	if g != nil {
		state = g.State
	}
	r.tell("after the reset: " + string(state) + map[bool]string{true: ", nothing can be written"}[blocked])
	_, err = r.host.RollBackPending(r.t.Context(), false)
	left = state == rollback.GuardPending && blocked
	if (err != nil) != left {
		r.t.Errorf("at boot: %v", err)
	}
	return left
}
