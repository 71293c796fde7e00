package firewall

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
)

// newContainer is a third namespace, behind ours as a container is: 10.8.0.2 and fd08::2, by a veth of its own, with
// its IPv4 masqueraded on the way to the peer.
func newContainer(t *testing.T, p hosttest.Peer) hosttest.Peer {
	t.Helper()
	other := exec.CommandContext(t.Context(), "sleep", "120")
	other.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	hosttest.Must(t, other.Start())
	t.Cleanup(func() {
		_ = other.Process.Kill() // it may have ended
		_ = other.Wait()         // and was killed
	})
	c := hosttest.Peer{T: t, PID: fmt.Sprint(other.Process.Pid)}
	hosttest.Shell(t, strings.ReplaceAll(`
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
	`, "PID", c.PID))
	p.Run("nsenter -n -t " + p.PID + " ip -6 route add fd08::/64 via fd00::1")
	return c
}

// TestMailOfContainersIsKeptInToo: namespaces that this host routes or masquerades for send as it does.
func TestMailOfContainersIsKeptInToo(t *testing.T) {
	t.Parallel()
	if !hosttest.InNamespace(t) {
		return
	}
	p := hosttest.NewPeer6(t)
	c := newContainer(t, p)
	ports := []string{"2526"}
	for port := range mailPorts {
		ports = append(ports, fmt.Sprint(port))
	}
	hosttest.Echo(t, p.PID, strings.Join(ports, ","))
	want := map[int]bool{2525: true, 2526: false} // 2525 is sent on to 25
	for port, mail := range mailPorts {
		want[port] = mail
	}
	h := &Nftables{}
	for generation, smtp := range []bool{true, false} {
		mustApply(t, h, Policy{Generation: uint64(generation) + 1, InputDefault: VerdictDrop,
			SMTPEgressAllowed: smtp})
		for port, mail := range want {
			for _, there := range []string{"10.9.0.2", "fd00::2"} {
				if port == 2525 && there != "10.9.0.2" {
					continue
				}
				reached := smtp || !mail
				if got := hosttest.Tries(reached, func() bool { return c.ReachesAt(there, port) }); got != reached {
					t.Errorf("smtp_egress_allowed=%t: a container reaches %s port %d: %t", smtp, there, port, got)
				}
			}
		}
	}
}
