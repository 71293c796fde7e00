package maas

import (
	"strings"

	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// decideCreate: exactly one machine in MAAS has the MAC addresses. The look itself rejects more than one.
func decideCreate(o Order, s Seen) Next {
	switch {
	case s.M == nil && s.P.asked(Create):
		return wait("MAAS to show the machine")
	case s.M == nil:
		return do(Create, map[string]string{"architecture": o.Params["architecture"]})
	}
	return done(s, map[string]string{"maas_found": found(s.P.asked(Create))})
}

func found(created bool) string {
	if created {
		return "created"
	}
	return "found"
}

// decideCommission is done when MAAS has taken the request.
func decideCommission(o Order, s Seen) Next {
	m := s.M
	if s.P.asked(Commission) {
		if m.Status == s.P.Before && reverted(s) {
			return putBack(s)
		}
		// A quick one may be over before anybody looks: then the status is another than before.
		if !s.P.Open(Commission) || m.is(ms.Commissioning, ms.Testing) || m.Status != s.P.Before {
			return done(s, map[string]string{"maas_commissioned": "true"})
		}
		return wait("MAAS to begin to commission the machine")
	}
	switch {
	case m.is(ms.Commissioning, ms.Testing), m.is(ms.Ready) && !o.on("force") && !s.P.asked(Override):
		return done(s, map[string]string{"maas_commissioned": "already"})
	case m.is(ms.FailedTesting) && s.P.asked(Override):
		return wait("MAAS to let it be commissioned again")
	case m.is(ms.FailedTesting):
		// MAAS does not commission from there. What follows at once tests the machine anew.
		return do(Override, map[string]string{"comment": "ingot " + o.Operation + ", to commission it again"})
	case m.is(ms.New, ms.FailedCommissioning, ms.Ready), m.is(ms.Broken) && o.on("force"):
		return do(Commission, pick(o.Params, "commissioning_scripts", "testing_scripts"))
	}
	return conflict(s, "it is not commissioned from there")
}

func decideReady(_ Order, s Seen) Next {
	switch m := s.M; {
	case m.is(ms.Ready):
		return done(s, map[string]string{"maas_ready": "true"})
	case m.is(ms.FailedCommissioning, ms.FailedTesting, ms.FailedReleasing, ms.FailedDiskErasing):
		return failedThere(s)
	case m.moves():
		return wait("MAAS, which says " + m.StatusName)
	}
	return conflict(s, "Ready was expected")
}

// layouts that MAAS sets, and that can be recognized on a machine.
var layouts = map[string]bool{"flat": true, "lvm": true, "bcache": true, "blank": true}

func decideLayout(o Order, s Seen) Next {
	want := o.Params["layout"]
	if want == "" {
		want = "flat"
	}
	switch m := s.M; {
	case !layouts[want]:
		return fail("INVALID_FIELD", false, "layout %q is none of flat, lvm, bcache and blank", want)
	case !m.is(ms.Ready, ms.Allocated):
		return conflict(s, "storage is set while it is Ready or Allocated")
	case m.BootDisk.ID == 0:
		return fail("DISK_RULE_NO_UNIQUE_MATCH", false, "MAAS has found no disk that the machine could boot from")
	case m.Layout == want:
		return done(s, map[string]string{"maas_storage_layout": want, "boot_disk": m.BootDisk.Name + " " + m.BootDisk.Serial})
	case s.P.asked(SetLayout) && !s.P.Open(SetLayout):
		return fail("MAAS_FAILED", false, "MAAS took the layout %s, and the disks show %s", want, m.Layout)
	case !m.is(ms.Ready):
		return conflict(s, "MAAS sets a storage layout while it is Ready")
	case s.P.asked(SetLayout):
		return wait("MAAS to show the layout")
	}
	return do(SetLayout, map[string]string{"layout": want})
}

// decideBootInterface: the interface that the machine boots from has an address when it is deployed.
func decideBootInterface(_ Order, s Seen) Next {
	m := s.M
	switch {
	case m.Boot.ID == 0:
		return fail("NO_BOOT_PATH", false, "MAAS knows no interface that the machine boots from")
	case m.Boot.addressed():
		return done(s, map[string]string{"maas_boot_interface": m.Boot.Name})
	case !m.is(ms.Ready, ms.Allocated):
		return conflict(s, "interfaces are set while it is Ready or Allocated")
	}
	return link(s, m.Boot, "NO_BOOT_PATH")
}

// fabricTag marks interfaces of a fabric in MAAS, such as those for RDMA.
const fabricTag = "roce"

// decideFabric sets an address on each interface that is tagged as one of a fabric.
func decideFabric(_ Order, s Seen) Next {
	linked := 0
	for _, n := range s.M.NICs {
		switch {
		case !n.tagged(fabricTag):
		case n.addressed():
			linked++
		case !s.M.is(ms.Ready, ms.Allocated):
			return conflict(s, "interfaces are set while it is Ready or Allocated")
		default:
			return link(s, n, "STAGE_CHECK_FAILED")
		}
	}
	return done(s, map[string]string{"maas_fabric_interfaces": itoa(linked)})
}

// link asks once per interface; requests are distinguished by the interface's number.
func link(s Seen, n NIC, reason string) Next {
	v := linkVerb(n.ID)
	subnet := n.subnet()
	switch {
	case subnet == 0:
		return fail(reason, false, "interface %s of the machine is on no subnet that MAAS knows", n.Name)
	case s.P.asked(v) && !s.P.Open(v):
		return fail(reason, false, "MAAS took the address mode of interface %s, and does not show it", n.Name)
	case s.P.asked(v):
		return wait("MAAS to show the address mode of interface " + n.Name)
	}
	return do(v, map[string]string{"interface": itoa(n.ID), "subnet": itoa(subnet)})
}

func (n NIC) tagged(tag string) bool {
	for _, t := range n.Tags {
		if strings.EqualFold(t, tag) {
			return true
		}
	}
	return false
}

// addressed: it gets an address by itself, or has one.
func (n NIC) addressed() bool {
	for _, l := range n.Links {
		if l.Mode == "auto" || l.Mode == "dhcp" || l.Mode == "static" {
			return true
		}
	}
	return false
}

// subnet is the one that it is linked to, or was seen on; 0 for none.
func (n NIC) subnet() int {
	for _, l := range n.Links {
		if l.Subnet != 0 {
			return l.Subnet
		}
	}
	for _, id := range n.Subnets {
		return id
	}
	return 0
}
