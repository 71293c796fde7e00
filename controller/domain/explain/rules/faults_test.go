package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// fault is something that goes wrong, and what must be said of it.
type fault struct {
	name   string
	inject func(l *lab)
	reason string
	on     explain.Party
	// says are words of the cause; next of the next event, empty for none; do of an action.
	says []string
	next string
	do   string
}

// faultsOfBMCs: what a management controller can do wrong.
var faultsOfBMCs = []fault{
	{"BMC password wrong, tried once", func(l *lab) {
		l.rebootBMC().look().granted().fails("BMC_AUTH_FAILED", "BMC 10.20.0.9 refuses the credentials")
	}, "BMC_AUTH_FAILED", explain.OnOperator, []string{"rejects the password", "rack-42", "not tried again"}, "",
		"ingot bmc credentials set rack-42"},
	{"BMC parked after a wrong password", func(l *lab) {
		l.reimage().look().applies().granted().fails("BMC_AUTH_FAILED",
			"BMC 10.20.0.9 has refused these credentials and is not asked again until they change")
	}, "BMC_AUTH_FAILED", explain.OnOperator, []string{"left alone", "until they change"}, "",
		"ingot bmc credentials set rack-42"},
	{"BMC shows another certificate", func(l *lab) {
		l.rebootBMC().look().granted().fails("BMC_AUTH_FAILED",
			"BMC 10.20.0.9 shows a certificate that is not the known one, or not trusted; no password was sent")
	}, "BMC_AUTH_FAILED", explain.OnOperator, []string{"certificate", "no password was sent"}, "", "ingot"},
	{"BMC silent", func(l *lab) {
		l.rebootBMC().look().granted().fails("BMC_UNREACHABLE", "BMC 10.20.0.9 does not answer")
	}, "BMC_UNREACHABLE", explain.OnOperator, []string{"10.20.0.9 does not answer"}, "", "--bmc-endpoint"},
	{"BMC silent, to be tried again", func(l *lab) {
		l.rebootBMC().look().granted().says(operation.OutcomeFailed, "BMC_UNREACHABLE", "BMC 10.20.0.9 does not answer", true)
	}, "BMC_UNREACHABLE", explain.OnLimit, []string{"attempt 1 failed", "10.20.0.9 does not answer"}, "retry 1 of 2",
		"ingot cancel"},
	{"BMC accepts and does nothing", func(l *lab) {
		l.rebootBMC().look().granted().fails("BMC_NO_EFFECT",
			"the BMC of m-1 accepted to switch the power off, and it still reads on")
	}, "BMC_NO_EFFECT", explain.OnOperator, []string{"accepts, and the machine does not follow", "still reads on"}, "",
		"reset the BMC"},
	{"BMC says off after the power-on", func(l *lab) {
		l.poweredOn().after(20 * time.Second)
		l.f.Machine.Status.PowerState, l.f.Machine.Status.PowerStateAt = "off", timestamppb.New(l.now)
	}, "BMC_NO_EFFECT", explain.OnBMC, []string{"off again or still"}, "next way", "by hand"},
	{"BMC in trouble while it is used", func(l *lab) {
		l.rebootBMC().look().granted().condition(fleet.BMCReachable, false, "BMC_UNREACHABLE",
			"no answer from 10.20.0.9").after(40 * time.Second)
	}, "BMC_UNREACHABLE", explain.OnBMC, []string{"BMC is in trouble"}, "OUTCOME_UNKNOWN", "ingot cancel"},
	{"BMC at rest refuses the password", func(l *lab) {
		l.host().condition(fleet.BMCReachable, false, "BMC_AUTH_FAILED", "BMC 10.20.0.9 refuses the credentials")
	}, "BMC_AUTH_FAILED", explain.OnOperator, []string{"cannot be switched from outside", "rejects the password"}, "",
		"ingot bmc credentials set"},
	{"no BMC registered, and it is needed", func(l *lab) {
		l.f.Machine.Spec.BmcEndpoint = ""
		l.host().rebootBMC().look().after(time.Minute)
	}, "NO_BOOT_PATH", explain.OnOperator, []string{"no BMC"}, "AGENT_UNAVAILABLE", "--bmc-endpoint"},
	{"site agent lacks the provider", func(l *lab) {
		l.f.Machine.Spec.Provider = "maas"
		l.reboot().look().after(time.Minute)
	}, "CAPABILITY_MISSING", explain.OnProvider, []string{"no adapter for provider maas"}, "AGENT_UNAVAILABLE",
		"ingot agent list"},
}

// faultsOfBoot: between the power-on and the installer's first word.
var faultsOfBoot = []fault{
	{"no DHCP request", func(l *lab) { l.poweredOn().after(90 * time.Second) },
		"INSTALLER_SILENT", explain.OnDHCP, []string{"90 s ago", "no DHCP request from " + mac,
			"cabling, VLAN or boot order"}, "INSTALLER_SILENT", "ingot logs op-1"},
	{"another DHCP server", func(l *lab) {
		l.poweredOn().after(60 * time.Second)
		l.f.Site.Segments[0].ForeignDHCP = "10.0.0.9"
	}, "INSTALLER_SILENT", explain.OnDHCP, []string{"another DHCP server, 10.0.0.9, answers on segment prov"},
		"INSTALLER_SILENT", "10.0.0.9"},
	{"address given, no installer", func(l *lab) {
		l.poweredOn().after(30 * time.Second)
		l.f.Site.Leases = []explain.Lease{{MAC: mac, Segment: "prov", Address: "10.20.0.101", Given: l.now}}
		l.after(60 * time.Second)
	}, "INSTALLER_SILENT", explain.OnAgent, []string{"got the address 10.20.0.101", "drivers"}, "INSTALLER_SILENT",
		"ingot logs op-1"},
	{"an old lease is no sign", func(l *lab) {
		l.f.Site.Leases = []explain.Lease{{MAC: mac, Segment: "prov", Address: "10.20.0.101", Given: t0.Add(-time.Minute)}}
		l.poweredOn().after(60 * time.Second)
	}, "INSTALLER_SILENT", explain.OnDHCP, []string{"no DHCP request"}, "INSTALLER_SILENT", "ingot site leases berlin"},
	{"asks under another MAC address", func(l *lab) {
		l.poweredOn().after(60 * time.Second)
		l.f.Site.Strangers = []explain.UnknownAgent{{MAC: "52:54:00:99:99:99", Segment: "prov", LastSeen: l.now}}
	}, "INSTALLER_SILENT", explain.OnDHCP, []string{"unknown MAC address 52:54:00:99:99:99",
		"registered with another address"}, "INSTALLER_SILENT", "--mac-addresses 52:54:00:99:99:99"},
	{"no MAC address registered", func(l *lab) {
		l.f.Machine.Spec.MacAddresses = nil
		l.poweredOn().after(60 * time.Second)
	}, "INSTALLER_SILENT", explain.OnOperator, []string{"no MAC address is registered"}, "INSTALLER_SILENT",
		"--mac-addresses"},
	{"pool used up", func(l *lab) {
		l.poweredOn().after(60 * time.Second)
		l.f.Site.Segments[0].PoolUsed = 100
	}, "INSTALLER_SILENT", explain.OnLimit, []string{"no free address: 100 of 100"}, "INSTALLER_SILENT", "larger pool"},
	{"segment is not served", func(l *lab) {
		l.poweredOn().after(60 * time.Second)
		l.f.Site.Segments[0].State = "interface eth1 has no carrier"
	}, "INSTALLER_SILENT", explain.OnDHCP,
		[]string{"segment prov of site berlin is not served: interface eth1 has no carrier"}, "INSTALLER_SILENT",
		"ingot site get berlin"},
	{"proxy segment, nothing heard", func(l *lab) {
		l.f.Site.Segments[0].Mode = "proxy"
		l.poweredOn().after(60 * time.Second)
	}, "INSTALLER_SILENT", explain.OnDHCP, []string{"addresses are given by another server there"}, "INSTALLER_SILENT",
		"ingot"},
	{"site agent dies during the boot",
		func(l *lab) { l.poweredOn().after(20 * time.Second).gone(siteID).after(60 * time.Second) },
		"SITE_AGENT_SILENT", explain.OnAgent, []string{"agent of site berlin", "60 s ago"}, "", "ingot agent list"},
	{"installer certified, no session", func(l *lab) {
		l.poweredOn().after(30 * time.Second)
		l.f.Boot.InstallerAgentID = "a-new"
	}, "INSTALLER_SILENT", explain.OnAgent,
		[]string{"certified as agent a-new", "has opened no session with the controller"}, "INSTALLER_SILENT", "ingot logs"},
	{"second key", func(l *lab) {
		l.poweredOn().after(30 * time.Second)
		l.f.Boot.InstallerAgentID, l.f.Boot.ContenderAt = "a-new", l.now
	}, "ENROLMENT_CONTESTED", explain.OnOperator, []string{"a second system claims to be this machine's installer"},
		"INSTALLER_SILENT", "ingot site leases"},
	{"enrolment contested, stopped", func(l *lab) {
		l.poweredOn().after(30 * time.Second)
		l.do(operation.Quarantine{Reason: "ENROLMENT_CONTESTED", Message: "another key asked for this machine's installer"})
	}, "ENROLMENT_CONTESTED", explain.OnOperator, []string{"several systems claim one identity"}, "", "ingot agent list"},
	{"installer silent, out of attempts", func(l *lab) {
		l.poweredOn()
		for !operation.IsTerminal(l.f.Op.Phase) {
			l.after(l.f.Op.WakeAt.Sub(l.now))
			if c := l.latest(); c.State == operation.Sent {
				l.granted().says(operation.OutcomeSucceeded, "", "", false)
			}
		}
	},
		"INSTALLER_SILENT", explain.OnOperator, []string{"REIMAGE failed at step repave-os", "no DHCP request from"}, "",
		"ingot reimage m-1 --image debian-12"},
	{"site has not applied yet", func(l *lab) { l.reimage().look().after(2 * time.Minute) },
		"SITE_AGENT_SILENT", explain.OnAgent, []string{"does not take over", "document 7 of 8"}, "SITE_AGENT_SILENT",
		"ingot site get berlin"},
	{"site agent gone before the boot", func(l *lab) {
		l.gone(siteID).host().find(hostID).Capabilities = []string{"kexec", "reboot"}
		l.reimage().look().after(3 * time.Minute)
	},
		"SITE_AGENT_SILENT", explain.OnAgent, []string{"agent of site berlin", "3 min ago"}, "SITE_AGENT_SILENT",
		"ingot agent list"},
	{"site never had an agent", func(l *lab) {
		l.withoutSite().host().find(hostID).Capabilities = []string{"kexec", "reboot"}
		l.reimage().look().after(time.Minute)
	}, "SITE_AGENT_SILENT", explain.OnOperator, []string{"site berlin has no agent"}, "SITE_AGENT_SILENT",
		"ingot token issue --role site"},
	{"site never applied, given up", func(l *lab) { l.reimage().look().after(time.Hour) },
		"SITE_AGENT_SILENT", explain.OnOperator, []string{"did not take over"}, "", "ingot reimage m-1"},
	{"no installer in the catalogue", func(l *lab) { l.f.InstallerReady = false; l.reimage().look().after(time.Second) },
		"INSTALLER_MISSING", explain.OnOperator, []string{"no installer"}, "", "ingot image add"},
	{"nobody can bring it into the installer",
		func(l *lab) { l.f.Agents[0].Capabilities = []string{"provider:maas"}; l.reimage().look().applies() },
		"NO_BOOT_PATH", explain.OnOperator, []string{"no agent can bring the machine into the installer"}, "",
		"--bmc-endpoint"},
	{"no provisioning network", func(l *lab) { l.f.Site.Segments = nil; l.reimage().look().applies() },
		"NO_BOOT_PATH", explain.OnOperator, []string{"serves no provisioning network"}, "", "ingot"},
	{"contender after the failure is not the cause", func(l *lab) {
		l.rebootBMC().look().granted().fails("BMC_UNREACHABLE", "x")
		l.f.Boot.ContenderAt = l.now
	},
		"BMC_UNREACHABLE", explain.OnOperator, []string{"does not answer"}, "", "ingot"},
}

// faultsOfImages: on the way to the disk.
var faultsOfImages = []fault{
	{"image digest wrong on attempt 2", func(l *lab) {
		l.installing().says(operation.OutcomeFailed, "IMAGE_DIGEST_MISMATCH", "read back sha256:bad, want sha256:5eed",
			true).after(time.Second)
		l.granted().says(operation.OutcomeFailed, "IMAGE_DIGEST_MISMATCH", "read back sha256:bad, want sha256:5eed", true)
	}, "IMAGE_DIGEST_MISMATCH", explain.OnLimit, []string{"attempt 2 failed", "not those of the image"}, "retry 2 of 2",
		"ingot image show debian-12"},
	{"image digest wrong, given up",
		func(l *lab) { l.installing().fails("IMAGE_DIGEST_MISMATCH", "read back sha256:bad, want sha256:5eed") },
		"IMAGE_DIGEST_MISMATCH", explain.OnOperator, []string{"not those of the image", "read back sha256:bad"}, "",
		"ingot image show debian-12"},
	{"image shorter than declared",
		func(l *lab) { l.installing().fails("IMAGE_UNAVAILABLE", "the image ended after 10 of 100 bytes") },
		"IMAGE_UNAVAILABLE", explain.OnOperator, []string{"not be fetched to its end", "10 of 100 bytes"}, "",
		"ingot site get"},
	{"server dies in mid-image", func(l *lab) {
		l.installing().says(operation.OutcomeFailed, "IMAGE_UNAVAILABLE", "connection reset", true)
	},
		"IMAGE_UNAVAILABLE", explain.OnLimit, []string{"attempt 1 failed", "connection reset"}, "retry 1 of 2",
		"ingot cancel"},
	{"image bigger than the disk",
		func(l *lab) { l.installing().fails("IMAGE_TOO_LARGE", "/dev/sda is too small: the image needs 40 GiB") },
		"IMAGE_TOO_LARGE", explain.OnOperator, []string{"smaller than the image needs", "40 GiB"}, "", "--install-disk"},
	{"disk write error", func(l *lab) { l.installing().fails("DISK_WRITE_ERROR", "write at 4096: input/output error") },
		"DISK_WRITE_ERROR", explain.OnOperator, []string{"refuses writes", "input/output error"}, "",
		"ingot machine inventory m-1"},
	{"two disks match the rule",
		func(l *lab) { l.installing().fails("DISK_RULE_NO_UNIQUE_MATCH", "2 disks match: /dev/sda, /dev/sdb") },
		"DISK_RULE_NO_UNIQUE_MATCH", explain.OnOperator, []string{"serial=QM1", "2 disks match", "nothing was written"}, "",
		"--install-disk serial=SERIAL"},
	{"image of an unknown kind", func(l *lab) { l.installing().fails("IMAGE_UNSUPPORTED", "no GUID partition table") },
		"IMAGE_UNSUPPORTED", explain.OnOperator, []string{"cannot be written", "no GUID"}, "", "ingot image show"},
	{"power cut while writing", func(l *lab) {
		l.installing().gone(instID)
		a := l.agent("a-inst-2", "installer", "repave")
		l.do(operation.SessionOpened{AgentID: a.AgentID, StateID: a.StateID, BootID: a.BootID, Installer: true})
	}, "EXECUTION_FAILED", explain.OnLimit, []string{"restarted while the installer worked"}, "retry 1 of 2",
		"ingot cancel"},
	{"installer falls silent while writing",
		func(l *lab) { l.installing().after(20 * time.Second).gone(instID).after(20 * time.Second) },
		"OUTCOME_UNKNOWN", explain.OnAgent, []string{"the installer a-inst", "whether the command still acts"},
		"switches the machine off and on", "ingot cancel"},
	{"new system has another digest", func(l *lab) {
		l.written().granted()
		a := l.agent("a-new", "host", "reboot")
		a.OperationID, a.ImageDigest, a.BootID = "op-1", "sha256:0dd", "boot-new"
		l.target.boot = "boot-new"
		l.do(operation.SessionOpened{AgentID: "a-new", StateID: a.StateID, BootID: "boot-new", OfTarget: true})
	}, "EVIDENCE_MISSING", explain.OnOperator, []string{"sha256:0dd"}, "", "ingot reimage m-1"},
	{"new system is slow to come up", func(l *lab) { l.written().granted().gone(instID).after(2 * time.Minute) },
		"", explain.OnAgent, []string{"new system has not reported for 2 min", "a first boot may take minutes"},
		"OUTCOME_UNKNOWN", "ingot logs op-1"},
	{"new system does not come up", func(l *lab) {
		l.written().granted().says(operation.OutcomeSucceeded, "", "", false).gone(instID).after(3 * time.Minute)
	}, "EVIDENCE_MISSING", explain.OnAgent, []string{"has not come back with another boot id"}, "EVIDENCE_MISSING",
		"ingot logs op-1"},
	{"new system without an agent is slow to phone home", func(l *lab) {
		l.withoutAgent().written().granted().gone(instID).after(2 * time.Minute)
	}, "", explain.OnAgent, []string{"has not phoned home for 2 min", "phone-home of the machine's new system"},
		"PHONE_HOME_MISSING", "ingot logs op-1"},
	{"new system without an agent does not phone home", func(l *lab) {
		l.withoutAgent().written().granted().gone(instID).after(time.Hour).look()
	}, "PHONE_HOME_MISSING", explain.OnOperator, []string{"has not phoned home", "its console"}, "", "ingot settle m-1"},
	{"erase is not supported", func(l *lab) {
		l.installing().fails("ERASE_UNSUPPORTED", "disk QM1: no sanitize")
	}, "ERASE_UNSUPPORTED", explain.OnOperator, []string{"cannot be erased by that method"}, "",
		"ingot machine inventory"},
	{"step time is up",
		func(l *lab) { l.installing().fails("STEP_TIMEOUT", "the time was up before the disk could boot") },
		"STEP_TIMEOUT", explain.OnOperator, []string{"longer than it may"}, "", "ingot logs"},
}

// faultsOfAgents: of the machine's own agent, and of its orders.
var faultsOfAgents = []fault{
	{"host agent silent before the command",
		func(l *lab) { l.host().gone(hostID).withoutSiteOnly().reboot().look().after(time.Minute) },
		"AGENT_UNAVAILABLE", explain.OnAgent, []string{"the machine's agent a-host", "60 s ago"},
		"AGENT_UNAVAILABLE; nothing will have been started", "ingot-agent status"},
	{"host agent silent, the site will take over",
		func(l *lab) { l.host().reboot().look().gone(hostID).after(10 * time.Second) },
		"AGENT_UNAVAILABLE", explain.OnAgent, []string{"a-host"}, "hands the step over to the agent of site berlin",
		"ingot cancel"},
	{"machine is switched off", func(l *lab) {
		l.host().withoutSiteOnly().reboot().look().gone(hostID).after(time.Minute)
		l.f.Machine.Status.PowerState, l.f.Machine.Status.PowerStateAt = "off", timestamppb.New(l.now)
	}, "AGENT_UNAVAILABLE", explain.OnAgent, []string{"switched off"}, "AGENT_UNAVAILABLE", "ingot cancel"},
	{"no agent was ever there", func(l *lab) {
		l.withoutSite().f.Machine.Spec.BmcEndpoint = ""
		l.reboot().look().after(10 * time.Second)
	}, "NOBODY_REACHES_MACHINE", explain.OnOperator, []string{"no agent has ever been enrolled"}, "NOBODY_REACHES_MACHINE",
		"ingot token issue m-1"},
	{"certificate revoked", func(l *lab) {
		l.host().withoutSiteOnly().gone(hostID).find(hostID).CertRevoked = t0
		l.reboot().look().after(time.Minute)
	}, "CERTIFICATE_REVOKED", explain.OnOperator, []string{"certificate was revoked 60 s ago"}, "AGENT_UNAVAILABLE",
		"ingot token issue m-1"},
	{"certificate ran out", func(l *lab) {
		l.host().withoutSiteOnly().gone(hostID).find(hostID).CertExpires = t0
		l.reboot().look().after(time.Minute)
	}, "AGENT_UNAVAILABLE", explain.OnAgent, []string{"certificate ran out 60 s ago"}, "AGENT_UNAVAILABLE",
		"ingot token issue m-1"},
	{"agent locked, command waits",
		func(l *lab) { l.host().find(hostID).Locked = true; l.reboot().look().after(5 * time.Second) },
		"AGENT_LOCKED", explain.OnOperator, []string{"locked at the machine itself"}, "AGENT_UNAVAILABLE",
		"ingot-agent unlock"},
	{"agent locked, refused", func(l *lab) {
		l.host().reboot().look().says(operation.OutcomeRefused, "AGENT_LOCKED", "locked by a local operator: disk swap",
			false)
	}, "AGENT_LOCKED", explain.OnOperator, []string{"locked", "disk swap"}, "", "ingot-agent unlock"},
	{"agent silent after the grant", func(l *lab) {
		l.host().reconfigure().look().granted().after(10 * time.Second).gone(hostID).after(time.Minute)
	},
		"OUTCOME_UNKNOWN", explain.OnAgent, []string{"was granted the start of cmd-1", "60 s ago", "is unknown"},
		"OUTCOME_UNKNOWN, and the machine is fenced", "ingot cancel op-1"},
	{"granted, never answered: fence", func(l *lab) {
		l.host().reconfigure().look().granted().after(10 * time.Second).gone(hostID).after(time.Hour)
	},
		"OUTCOME_UNKNOWN", explain.OnOperator, []string{"cmd-1 (net) was granted", "outcome is UNKNOWN",
			"a-host was heard last"}, "settles by itself", "ingot settle m-1 cmd-1 --verdict VERDICT --comment HOW-YOU-KNOW"},
	{"memory lost after the grant", func(l *lab) {
		l.host().reconfigure().look().granted()
		l.find(hostID).StateID = "s-2"
		l.do(operation.SessionOpened{AgentID: hostID, StateID: "s-2", BootID: "boot-a-host", OfTarget: true})
	}, "OUTCOME_UNKNOWN", explain.OnOperator, []string{"another memory"}, "settles by itself", "ingot settle m-1 cmd-1"},
	{
		"reboot that nothing confirms",
		func(l *lab) {
			l.host().reboot().look().granted().says(operation.OutcomeSucceeded, "", "", false).after(40 * time.Second)
		},
		"EVIDENCE_MISSING",
		explain.OnAgent,
		[]string{"still shows the boot of before"},
		"EVIDENCE_MISSING",
		"ingot logs op-1",
	},
	{"reboot that nothing confirmed: fence", func(l *lab) {
		l.host().reboot().look().granted().says(operation.OutcomeSucceeded, "", "", false).after(time.Hour)
	},
		"EVIDENCE_MISSING", explain.OnOperator, []string{"says that it is done", "no new boot"}, "another boot",
		"ingot settle"},
	{"network change rolled back", func(l *lab) {
		l.host().reconfigure().look().granted().fails("CONFIG_ROLLED_BACK",
			"no session within 60 s with the new configuration")
	}, "CONFIG_ROLLED_BACK", explain.OnOperator, []string{"went back to the old one by itself", "no session within 60 s"},
		"", "ingot reconfigure m-1"},
	{"configuration was changed by hand", func(l *lab) {
		l.host().condition(fleet.Degraded, true, "CONFIG_DRIFT", "the difference is in the audit log")
	},
		"CONFIG_DRIFT", explain.OnOperator, []string{"another party has changed"}, "", "--accept-drift"},
	{"a power supply has failed", func(l *lab) {
		l.host().condition(fleet.HardwareFault, true, "HARDWARE_FAULT", "power supply PSU2 (critical)")
	},
		"HARDWARE_FAULT", explain.OnOperator, []string{"PSU2"}, "ten minutes", "ingot machine health"},
	{"a disk of a mirror is gone", func(l *lab) {
		l.host().condition(fleet.RAIDDegraded, true, "RAID_DEGRADED", "md127 (raid1) lacks 1 of 2 disks")
	},
		"RAID_DEGRADED", explain.OnOperator, []string{"md127"}, "every minute", "ingot machine inventory"},
	{"host cannot be given interfaces", func(l *lab) {
		l.host().reconfigure().look().granted().fails("NETWORK_RECONFIG_NOT_WIRED", "no networkd")
	},
		"NETWORK_RECONFIG_NOT_WIRED", explain.OnOperator, []string{"systemd-networkd"}, "", "ingot reconfigure"},
	{"agent lacks the capability",
		func(l *lab) { l.host().find(hostID).Capabilities = []string{"reboot"}; l.reconfigure().look() },
		"CAPABILITY_MISSING", explain.OnOperator, []string{"a-host cannot reconfig on this machine"}, "",
		"ingot-agent doctor"},
	{"agent's disk is full", func(l *lab) {
		l.host().reboot().look().says(operation.OutcomeRefused, "AGENT_STORAGE_FULL", "no space left on device", false)
	},
		"AGENT_STORAGE_FULL", explain.OnOperator, []string{"disk is full"}, "", "free space"},
	{"executor panicked", func(l *lab) { l.host().reboot().look().granted().fails("EXECUTOR_PANICKED", "nil pointer") },
		"EXECUTOR_PANICKED", explain.OnOperator, []string{"a bug in itself"}, "", "ingot logs op-1"},
	{"command expired on the agent", func(l *lab) {
		l.host().reboot().look().says(operation.OutcomeRefused, "COMMAND_EXPIRED", "expired at 12:00", false)
	},
		"COMMAND_EXPIRED", explain.OnOperator, []string{"time was up before the agent started it"}, "", "ingot-agent doctor"},
	{"agent does not acknowledge", func(l *lab) { l.host().reboot().look().after(50 * time.Second) },
		"AGENT_UNAVAILABLE", explain.OnAgent, []string{"cmd-1 was sent 50 s ago", "no acknowledgement of it has arrived"},
		"AGENT_UNAVAILABLE", "ingot-agent doctor"},
	{"agent never asks for leave", func(l *lab) {
		l.host().reboot().look().do(operation.AckedByAgent{CommandID: "cmd-1", AgentID: hostID})
		l.after(50 * time.Second)
	}, "AGENT_UNAVAILABLE", explain.OnAgent, []string{"holds command cmd-1", "no request for its grant has arrived"},
		"AGENT_UNAVAILABLE", "ingot-agent doctor"},
	{"agent unavailable, given up",
		func(l *lab) { l.host().withoutSiteOnly().gone(hostID).reboot().look().after(time.Hour) },
		"AGENT_UNAVAILABLE", explain.OnOperator, []string{"REBOOT failed", "nothing was started", "a-host was heard last"},
		"", "ingot reboot m-1"},
	{"memory rolled back", func(l *lab) {
		l.host().reboot().look()
		l.do(operation.SessionOpened{AgentID: hostID, StateID: "s-a-host", BootID: "boot-a-host", OfTarget: true,
			RolledBack: true})
	}, "AGENT_STATE_ROLLED_BACK", explain.OnOperator, []string{"older copy of its memory"}, "",
		"ingot commands --machine m-1"},
	{"success without a grant",
		func(l *lab) { l.host().reboot().look().says(operation.OutcomeSucceeded, "", "did it", false) },
		"OUTCOME_UNKNOWN", explain.OnOperator, []string{"has no grant for command", "no report of this executor"}, "settles",
		"ingot settle"},
	{"success under a grant that the database has lost", func(l *lab) {
		l.host().reboot().look().says(operation.OutcomeSucceeded, "", "did it", false)
		l.f.Freeze = fleet.Freeze{Since: l.now, WentBack: true}
	}, "OUTCOME_UNKNOWN", explain.OnOperator, []string{"may have lost the grant"}, "settles", "ingot settle"},
	{"host silent at rest", func(l *lab) { l.host().gone(hostID); l.now = l.now.Add(time.Hour) },
		"AGENT_UNAVAILABLE", explain.OnAgent, []string{"nothing is under way", "a-host was heard last"},
		"as soon as its agent connects", "ingot-agent status"},
	{"all agents silent", func(l *lab) { l.host().reboot().look().gone(hostID).gone(siteID).after(50 * time.Second) },
		"AGENT_UNAVAILABLE", explain.OnAgent, []string{"every agent that could act on this machine is silent"},
		"AGENT_UNAVAILABLE", "ingot"},
}

// faultsOfRule: what people, limits and the controller itself keep from going on.
var faultsOfRule = []fault{
	{"a budget is full", func(l *lab) {
		l.host().reboot()
		l.f.Op.Destructive = true
		l.look()
		l.f.Budget = "budget racks: 2 of 2 slots of rack r42 are taken"
	}, "", explain.OnLimit, []string{"budget racks", "r42"}, "when there is room", "ingot budget slots"},
	{"a budget of interruptions is full", func(l *lab) {
		l.host().reboot()
		l.f.Op.Interrupts = true
		l.look()
		l.f.Budget = "budget out: 1 of 1 slots of fleet are taken"
	}, "", explain.OnLimit, []string{"budgets for machines out of service"}, "when there is room", "ingot budget slots"},
	{"fleet frozen, command waits for its grant", func(l *lab) {
		l.host().reboot().look()
		l.f.Freeze = fleet.Freeze{Since: l.now, Actor: "ann", Comment: "rack 42"}
		l.after(5 * time.Second)
	},
		"FLEET_FROZEN", explain.OnOperator, []string{"the fleet is frozen since", "ann froze it: rack 42", "grants no start"},
		"GRANT_REFUSED", "ingot server thaw"},
	{"fleet frozen, grant refused", func(l *lab) {
		l.host().reboot().look()
		l.f.Freeze = fleet.Freeze{Since: l.now, Restored: true}
		l.refused("FLEET_FROZEN", "the fleet is frozen after a restore")
	}, "FLEET_FROZEN", explain.OnOperator, []string{"was frozen", "did not grant the start"}, "", "ingot server thaw"},
	{"database went back, grant refused", func(l *lab) {
		l.host().reboot().look()
		l.f.Freeze = fleet.Freeze{Since: l.now, WentBack: true, Comment: "it lacks beat 3"}
		l.refused("FLEET_FROZEN", "the fleet is frozen: the database has gone back: it lacks beat 3")
	}, "DATABASE_WENT_BACK", explain.OnOperator, []string{"was frozen", "did not grant the start"}, "", "ingot server thaw"},
	{"in service without an image", func(l *lab) {
		l.host().condition(fleet.Provisioned, false, "GrantOfDestructiveCommand", "")
		l.phase, l.f.Machine.Status.Phase = fleet.Ready, baremetalv1.MachineStatus_READY
		l.f.Machine.Status.AttentionReason, l.f.Machine.Status.AttentionMessage = fleet.AttentionUnprovisioned,
			"no verified system is on the disk"
	}, "NOT_PROVISIONED", explain.OnOperator, []string{"no verified system"}, "", "ingot enter-maintenance m-1"},
	{"a plan failed, and its cure is the plan", func(l *lab) {
		l.host().condition(fleet.NeedsIntervention, true, "EXECUTION_FAILED", "exit status 7")
		l.f.Causes = []explain.MachineCause{{Cause: fleet.CausePlan, Subject: "burn-in", Reason: "EXECUTION_FAILED"}}
	}, "EXECUTION_FAILED", explain.OnOperator, []string{"PLAN_FAILED, until the same work, done well"}, "",
		"ingot run start m-1 --plan burn-in"},
	{"fleet frozen at rest",
		func(l *lab) { l.host().f.Freeze = fleet.Freeze{Since: l.now, Actor: "ann", Comment: "rack 42"} },
		"FLEET_FROZEN", explain.OnOperator, []string{"nothing can be started", "ann froze it: rack 42"}, "",
		"ingot server thaw"},
	{"registered with a typo in the MAC address", func(l *lab) {
		l.host().f.Machine.Status.NodeState = baremetalv1.NodeState_NODE_STATE_BOOTSTRAP_ISSUED
		l.f.Checks = node.Evaluate(node.Checks(), node.Health{Live: true, MACs: []string{"52:54:00:00:00:01"},
			Inventoried: true, SeenMACs: []string{"52:54:00:00:00:09"}})
	}, "NODE_NOT_ACTIVE", explain.OnOperator, []string{"a-host is connected", "52:54:00:00:00:01 is not among",
		"52:54:00:00:00:09"}, "by itself", "ingot machine update m-1 --mac-addresses"},
	{"clone quarantined", func(l *lab) {
		l.host().quarantine("CLONE_DETECTED",
			"two machines with different hardware use this machine's identity at the same time")
	}, "CLONE_DETECTED", explain.OnOperator, []string{"quarantined", "a disk was copied"}, "", "ingot clear m-1"},
	{"clone quarantined over a granted command", func(l *lab) {
		l.host().reboot().look().granted()
		l.do(operation.Quarantine{Reason: "CLONE_DETECTED", Message: "an older boot came back"})
		l.quarantine("CLONE_DETECTED", "an older boot came back")
	}, "CLONE_DETECTED", explain.OnOperator, []string{"quarantined", "cmd-1 was granted before"}, "",
		"ingot settle m-1 cmd-1"},
	{"flagged RMA at rest", func(l *lab) { l.host().condition(fleet.RMA, true, "RMA", "DIMM 3") },
		"MACHINE_BLOCKED", explain.OnOperator, []string{"flagged RMA", "DIMM 3"}, "", "ingot flag m-1 RMA --off"},
	{"flagged RMA before the grant",
		func(l *lab) { l.host().reboot().look().condition(fleet.RMA, true, "RMA", "").after(5 * time.Second) },
		"MACHINE_BLOCKED", explain.OnOperator, []string{"flagged RMA"}, "GRANT_REFUSED", "ingot flag m-1 RMA --off"},
	{"retired", func(l *lab) { l.host().condition(fleet.RetiredFlag, true, "Retired", "") },
		"MACHINE_BLOCKED", explain.OnOperator, []string{"flagged Retired"}, "", "ingot flag m-1 Retired --off"},
	{"cancelled, no answer yet", func(l *lab) {
		l.host().reboot().look().granted().after(5 * time.Second)
		l.do(operation.CancelAsked{Actor: "ann", Why: "the machine is flagged RMA"})
		l.after(10 * time.Second)
	}, "CANCELED_BY_REQUEST", explain.OnAgent, []string{"has not answered yet"}, "OUTCOME_UNKNOWN", "ingot watch"},
	{"cancelled", func(l *lab) {
		l.host().reboot().look().do(operation.CancelAsked{Actor: "ann"})
		l.now = l.now.Add(time.Minute)
	},
		"CANCELED_BY_REQUEST", explain.OnNobody, []string{"cancelled at step reboot", "canceled by ann"}, "",
		"ingot reboot m-1"},
	{"no controller looks", func(l *lab) { l.host().reboot(); l.now = l.now.Add(5 * time.Minute) },
		"CONTROLLER_LEASE_LOST", explain.OnLimit, []string{"should have looked"}, "as soon as one works",
		"ingot server info"},
	{"controllers are there and do not look",
		func(l *lab) { l.host().reboot(); l.f.Controllers = 2; l.now = l.now.Add(5 * time.Minute) },
		"", explain.OnLimit, []string{"stopped or overloaded"}, "as soon as one works", "ingot server info"},
	{"install failed three times", func(l *lab) {
		l.host().f.Machine.Status.NodeState = baremetalv1.NodeState_NODE_STATE_INSTALL_FAILED
		l.f.Machine.Status.LastInstallError = "no space on /dev/sda"
	}, "INSTALL_ATTEMPTS_EXHAUSTED", explain.OnOperator, []string{"third install attempt", "no space on /dev/sda"}, "",
		"ingot node transition"},
	{"deleted", func(l *lab) { l.f.Machine.DeletedAt = timestamppb.New(l.now) },
		"MACHINE_DELETED", explain.OnNobody, []string{"was deleted"}, "", "ingot machine register"},
	{"needs intervention without an operation",
		func(l *lab) { l.host().condition(fleet.NeedsIntervention, true, "DISK_WRITE_ERROR", "sda is failing") },
		"DISK_WRITE_ERROR", explain.OnOperator, []string{"refuses writes", "sda is failing"}, "", "ingot clear m-1"},
	{"workflow failed", func(l *lab) {
		l.host().f.Workflow = &workflow.Workflow{
			ID: "wf-1", Kind: "DECOMMISSION", Mode: "FULL_DECOMMISSION", State: workflow.FailedManual, Stage: "wipe_storage",
			FailureClass: workflow.ClassCheck,
			Reason:       "STAGE_CHECK_FAILED", Message: "disk QM1 still has partitions", Attempts: 3,
		}
	}, "STAGE_CHECK_FAILED", explain.OnOperator, []string{"wf-1", "FAILED_MANUAL_INTERVENTION at stage wipe_storage",
		"still has partitions"}, "", "ingot workflow act wf-1 retry-stage"},
	{"workflow lost its attempt", func(l *lab) {
		l.host().f.Workflow = &workflow.Workflow{ID: "wf-1", Kind: "ONBOARDING", State: workflow.Running, Stage: "install",
			Attempts: 1}
	}, "", explain.OnOperator, []string{"no attempt of it is under way"}, "", "ingot workflow act wf-1 resume"},
	{"attempt of a workflow", func(l *lab) {
		l.poweredOn().after(90 * time.Second)
		l.f.Workflow = &workflow.Workflow{ID: "wf-1", Kind: "ONBOARDING", State: workflow.Running, Stage: "install",
			Attempts: 1}
	}, "INSTALLER_SILENT", explain.OnDHCP, []string{"attempt of onboarding wf-1, at stage install", "no DHCP request"},
		"INSTALLER_SILENT", "ingot cancel"},
	{"discovered", func(l *lab) { l.host().f.Machine.Status.NodeState = node.Discovered },
		"", explain.OnOperator, []string{"and not approved yet"}, "", "ingot node transition m-1 pending"},
	{"installed", func(l *lab) { l.host().f.Machine.Status.NodeState = node.Installed },
		"", explain.OnOperator, []string{"waits to be verified"}, "", "ingot node transition m-1 active"},
	{"deprovisioning by nobody", func(l *lab) { l.host().f.Machine.Status.NodeState = node.Deprovisioning },
		"", explain.OnLimit, []string{"is deprovisioning, which stands for work, and no operation or workflow"},
		"moves the node to quarantined", "ingot"},
	{"installing by nobody", func(l *lab) { l.host().f.Machine.Status.NodeState = node.Installing },
		"", explain.OnLimit, []string{"is installing, which stands for work"}, "moves the node to pending", "ingot"},
	{"installing by its own installer", func(l *lab) { l.lone(workflow.ReportedInstall, node.Installing) },
		"", explain.OnAgent, []string{"an installer that reports by itself"}, "INSTALLER_SILENT", "ingot cancel"},
	{"its own installer has failed twice", func(l *lab) {
		l.lone(workflow.ReportedInstall, node.Installing)
		l.f.Machine.Status.InstallAttempts, l.f.Machine.Status.LastInstallError = 2, "no disk"
	}, "", explain.OnAgent, []string{"2 of 3 install attempts have failed", "no disk"}, "INSTALLER_SILENT",
		"ingot cancel"},
	{"its own installer is silent", func(l *lab) {
		l.lone(workflow.ReportedInstall, node.Installing).after(2 * time.Hour)
	}, "INSTALLER_SILENT", explain.OnOperator, []string{"has not reported for 1h0m0s"}, "", "ingot"},
	{"hardware is being replaced",
		func(l *lab) { l.lone(workflow.AwaitReplacement, node.Migrating).gone(hostID).after(time.Minute) },
		"", explain.OnOperator, []string{"hardware is being replaced", "under another boot"}, "AGENT_UNAVAILABLE",
		"ingot cancel"},
	{"three attempts of one reimage", func(l *lab) {
		l.host().start(fleet.Reimage, operation.Step{Kind: kind.Repave}).look()
		l.f.Op.Phase, l.f.Op.FinishedAt, l.f.Op.WakeAt = operation.Failed, l.now, time.Time{}
		l.f.Op.Error = &operation.Error{Code: "INSTALL_ATTEMPTS_EXHAUSTED",
			Message: "install attempt 3 of 3 has failed: DISK_WRITE_ERROR: sector 8192",
			Details: map[string]string{"cause": "DISK_WRITE_ERROR"}}
		l.f.Machine.Status.ActiveOperationId, l.f.Machine.Status.NodeState = "", node.InstallFailed
		l.f.Machine.Status.LastInstallError = "DISK_WRITE_ERROR: sector 8192"
		l.condition(fleet.NeedsIntervention, true, "INSTALL_ATTEMPTS_EXHAUSTED", l.f.Op.Error.Message)
	}, "INSTALL_ATTEMPTS_EXHAUSTED", explain.OnOperator,
		[]string{"third install attempt", "disk refuses writes", "sector 8192"}, "", "ingot node update"},
	{"retired while it is being imaged", func(l *lab) {
		l.host().reboot().look().granted().after(5 * time.Second)
		l.do(operation.CancelAsked{Actor: "ann", Why: "the node is retired"})
		l.condition(fleet.RetiredFlag, true, "NodeState", "").after(time.Second)
	}, "CANCELED_BY_REQUEST", explain.OnAgent, []string{"has not answered yet", "the machine is blocked"},
		"OUTCOME_UNKNOWN", "ingot watch"},
	{"enrolled, and no session yet", func(l *lab) {
		l.host().gone(hostID).f.Machine.Status.NodeState = node.BootstrapIssued
		l.f.Machine.Status.AgentId, l.find(hostID).LastSeen = "", time.Time{}
	}, "", explain.OnAgent, []string{"has enrolled, and has not opened a session yet"}, "", "ingot"},
	{"clone found while a command waits",
		func(l *lab) { l.host().reboot().look().quarantine("CLONE_DETECTED", "an older boot came back") },
		"CLONE_DETECTED", explain.OnOperator, []string{"quarantined", "a disk was copied"}, "AGENT_UNAVAILABLE",
		"ingot cancel"},
	{"just asked for", func(l *lab) { l.host().reboot() },
		"", explain.OnNobody, []string{"asked for 0 s ago"}, "a controller starts it", "ingot cancel op-1"},
	{"between two steps", func(l *lab) { l.reimage().look(); l.f.Op.WaitReason = "" },
		"", explain.OnNobody, []string{"a controller is about to go on"}, "", "ingot cancel op-1"},
	{"registered and nothing else", func(l *lab) { l.withoutSite().f.Machine.Spec.BmcEndpoint = "" },
		"AGENT_UNAVAILABLE", explain.OnOperator, []string{"no agent has ever been enrolled", "no BMC"}, "",
		"ingot token issue m-1"},
	{"without an agent and a BMC, and well", func(l *lab) {
		l.withoutSite().f.Machine.Spec.BmcEndpoint = ""
		st := l.f.Machine.Status
		st.Agentless, st.Phase = true, baremetalv1.MachineStatus_MAINTENANCE
		st.Conditions = append(st.Conditions, &baremetalv1.Condition{Type: string(fleet.Reachable), Status: true,
			Known: true})
	}, "", explain.OnOperator, []string{"maintenance"}, "", "ingot"},
	{"without an agent and silent", func(l *lab) {
		l.f.Machine.Status.Agentless, l.f.Machine.Status.ProbedAddress = true, "10.20.0.50"
	}, "MACHINE_UNREACHABLE", explain.OnOperator, []string{"installed without an agent", "does not answer the probe",
		"10.20.0.50"}, "asked again", "ingot reboot m-1"},
	{"without an agent, and its site is silent", func(l *lab) { l.withoutSite().unobserved() },
		"NOT_OBSERVED", explain.OnAgent, []string{"the agent of site berlin, a-site, is silent", "observed last at"},
		"reports it", "ingot agent list"},
	{"without an agent, and its site is back", func(l *lab) { l.unobserved().f.Site.SilentSince = time.Time{} },
		"NOT_OBSERVED", explain.OnAgent, []string{"is back", "has not reported the machine yet"}, "reports it",
		"ingot agent list"},
	{"never taken into service",
		func(l *lab) { l.host().f.Machine.Status.Phase = baremetalv1.MachineStatus_FACTORY_READY },
		"", explain.OnOperator, []string{"never taken into service"}, "", "ingot enter-maintenance m-1"},
	{"reimage succeeded", func(l *lab) {
		l.written().granted()
		a := l.agent("a-new", "host", "reboot")
		a.OperationID, a.ImageDigest, a.BootID = "op-1", digest, "boot-new"
		l.target.boot = "boot-new"
		l.do(operation.SessionOpened{AgentID: "a-new", StateID: a.StateID, BootID: "boot-new", OfTarget: true})
		l.f.Named = true
	}, "", explain.OnNobody, []string{"REIMAGE has succeeded"}, "", "ingot why m-1"},
	{"stage waits for the agent", func(l *lab) { l.host().gone(hostID).stage().after(time.Minute) },
		"AGENT_UNAVAILABLE", explain.OnAgent, []string{"check of stage verify_boot does not pass yet",
			"a-host was heard last"}, "STAGE_CHECK_FAILED", "ingot cancel"},
	{"stage waits for something else", func(l *lab) {
		l.host().stage().after(time.Minute)
		l.f.Op.Steps[0].Message = "MAAS does not say Ready"
	}, "", explain.OnProvider, []string{"check of stage verify_boot does not pass yet: MAAS does not say Ready"},
		"STAGE_CHECK_FAILED", "ingot cancel"},
	{"stages that are behind it", func(l *lab) {
		l.host().gone(hostID).stage().after(time.Minute)
		l.f.Workflow = &workflow.Workflow{ID: "wf-1", Kind: "ONBOARDING", State: workflow.Running, Stage: "verify_node",
			OperationID: l.f.Op.ID, Attempts: 1}
		done := operation.Step{Name: "approve-node", Kind: kind.WorkflowStage, Mode: "approve_node",
			State: operation.StepSucceeded, Message: "the node is new"}
		l.f.Op.Steps = append([]operation.Step{done}, l.f.Op.Steps...)
		l.f.Op.CurrentStep, l.f.Op.Steps[1].Message = 1, "the machine's agent has no session"
	}, "AGENT_UNAVAILABLE", explain.OnAgent, []string{"stage approve_node: succeeded, the node is new",
		"the check says: the machine's agent has no session"},
		"STAGE_CHECK_FAILED", "ingot cancel"},
	{"nothing wrong",
		func(l *lab) { l.host().f.Machine.Status.Phase = baremetalv1.MachineStatus_READY; l.phase = fleet.Ready },
		"", explain.OnNobody, []string{"in service, and nothing is under way"}, "", "ingot reboot m-1"},
	{"in maintenance", func(l *lab) { l.host() }, "", explain.OnOperator, []string{"in maintenance"}, "",
		"ingot exit-maintenance m-1"},
	{"executing well", func(l *lab) {
		l.installing().after(20 * time.Second)
		l.f.Progress = explain.Progress{Percent: 42, Message: "120 MiB/s", At: l.now}
	}, "", explain.OnAgent, []string{"42% (120 MiB/s)", "image is being written"}, "OUTCOME_UNKNOWN", "ingot cancel op-1"},
}

// faultsOfSSH: scripts that the site's agent runs on the machine.
var faultsOfSSH = []fault{
	{"SSH host key changed", func(l *lab) {
		l.ssh().fails("SSH_HOST_KEY_MISMATCH", "10.20.0.50:22 shows SHA256:abc")
	},
		"SSH_HOST_KEY_MISMATCH", explain.OnOperator, []string{"shows another key", "SHA256:abc"}, "", "--ssh-host-keys"},
	{"SSH user refused", func(l *lab) { l.ssh().fails("SSH_AUTH_FAILED", "no method is left") },
		"SSH_AUTH_FAILED", explain.OnOperator, []string{"refuses the user or the key"}, "", "authorized_keys"},
	{"SSH server silent", func(l *lab) {
		l.ssh().says(operation.OutcomeFailed, "SSH_UNREACHABLE", "no route to host", true)
	},
		"SSH_UNREACHABLE", explain.OnLimit, []string{"does not answer", "no route to host"}, "", "ingot"},
	{"script runs", func(l *lab) { l.ssh().after(10 * time.Second) },
		"", explain.OnAgent, []string{"a script runs on the machine", "10.20.0.50:22"}, "OUTCOME_UNKNOWN", "ingot cancel"},
}

func faults() []fault {
	return slices.Concat(faultsOfControllers, faultsOfSSH, faultsOfBMCs, faultsOfBoot, faultsOfImages, faultsOfAgents,
		faultsOfRule, faultsOutside, faultsOfRollouts)
}

// TestFaults: of each fault, the right cause.
func TestFaults(t *testing.T) {
	names := map[string]bool{}
	for _, c := range faults() {
		if names[c.name] {
			t.Errorf("%q is there twice", c.name)
		}
		names[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			c.inject(l)
			checkFault(t, c, l.explain())
		})
	}
	t.Logf("%d faults", len(names))
}

func checkFault(t *testing.T, c fault, e explain.Explanation) {
	t.Helper()
	all := everything(e)
	if e.Cause.Reason != c.reason || e.WaitsOn != c.on {
		t.Errorf("reason %q on %s by rule %s, want %q on %s\n%s", e.Cause.Reason, e.WaitsOn, e.Rule, c.reason, c.on, all)
	}
	for _, w := range c.says {
		if !strings.Contains(all, w) {
			t.Errorf("%q is not in\n%s", w, all)
		}
	}
	if (c.next == "") != (e.Next == "") && e.OperationID == "" || !strings.Contains(e.Next, c.next) {
		t.Errorf("next %q, want %q", e.Next, c.next)
	}
	if !slices.ContainsFunc(e.Actions, func(a explain.Action) bool { return strings.Contains(a.Command, c.do) }) {
		t.Errorf("no action %q in %+v", c.do, e.Actions)
	}
	for _, a := range e.Actions {
		if a.Command == "" || a.Consequence == "" {
			t.Errorf("action without its consequence: %+v", a)
		}
	}
	if e.Summary == "" || e.Cause.Reason != "" && baremetalv1.Reason_value[e.Cause.Reason] == 0 {
		t.Errorf("summary %q, reason %q", e.Summary, e.Cause.Reason)
	}
}
