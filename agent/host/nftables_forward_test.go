package host

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// newContainer is a third namespace, behind ours as a container is: 10.8.0.2 and fd08::2, by a veth of its own, with
// its IPv4 masqueraded on the way to the peer.
func newContainer(t *testing.T, p peer) peer {
	t.Helper()
	other := exec.CommandContext(t.Context(), "sleep", "120")
	other.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	must(t, other.Start())
	t.Cleanup(func() {
		_ = other.Process.Kill() // it may have ended
		_ = other.Wait()         // and was killed
	})
	c := peer{t: t, pid: fmt.Sprint(other.Process.Pid)}
	sh(t, strings.ReplaceAll(`
		ip link add inner type veth peer name eth0 netns PID
		ip addr add 10.8.0.1/24 dev inner
		ip addr add fd08::1/64 dev inner nodad
		ip link set inner up
		nsenter -n -t PID ip link set lo up
		nsenter -n -t PID ip addr add 10.8.0.2/24 dev eth0
		nsenter -n -t PID ip addr add fd08::2/64 dev eth0 nodad
		nsenter -n -t PID ip link set eth0 up
		nsenter -n -t PID ip route add default via 10.8.0.1
		nsenter -n -t PID ip -6 route add default via fd08::1
		echo 1 >/proc/sys/net/ipv4/ip_forward
		echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
		nft 'add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; }; add rule ip nat out oifname here masquerade'
		nft 'add chain ip nat in { type nat hook prerouting priority -100; }; add rule ip nat in tcp dport 2525 dnat to 10.9.0.2:25'
	`, "PID", c.pid))
	p.run("nsenter -n -t " + p.pid + " ip -6 route add fd08::/64 via fd00::1")
	return c
}

// reachesAt opens a connection from this side to an address and port.
func (p peer) reachesAt(address string, port int) bool {
	dial := fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", address, port)
	return exec.CommandContext(p.t.Context(), "nsenter", "-n", "-t", p.pid, "timeout", "0.7", "bash", "-c",
		dial).Run() == nil
}

// TestMailOfContainersIsKeptInToo: namespaces that this host routes or masquerades for send as it does.
func TestMailOfContainersIsKeptInToo(t *testing.T) {
	t.Parallel()
	if !inNetns(t) {
		return
	}
	p := newPeer6(t)
	c := newContainer(t, p)
	ports := []string{"2526"}
	for port := range mailPorts {
		ports = append(ports, fmt.Sprint(port))
	}
	echoes(t, p.pid, strings.Join(ports, ","))
	want := map[int]bool{2525: true, 2526: false} // 2525 is sent on to 25
	for port, mail := range mailPorts {
		want[port] = mail
	}
	h := New(Config{})
	for generation, smtp := range []bool{true, false} {
		mustApply(t, h, FirewallPolicy{Generation: uint64(generation) + 1, InputDefault: VerdictDrop,
			SMTPEgressAllowed: smtp})
		for port, mail := range want {
			for _, there := range []string{"10.9.0.2", "fd00::2"} {
				if port == 2525 && there != "10.9.0.2" {
					continue
				}
				reached := smtp || !mail
				if got := tried(reached, func() bool { return c.reachesAt(there, port) }); got != reached {
					t.Errorf("smtp_egress_allowed=%t: a container reaches %s port %d: %t", smtp, there, port, got)
				}
			}
		}
	}
}
