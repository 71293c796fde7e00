package decider_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// starts are operations of every kind, on machines of every kind.
func starts(t *testing.T) map[string]func() *stored {
	out := map[string]func() *stored{}
	capable := func(steps ...operation.Step) func() *stored {
		return func() *stored {
			s := newStored(t, steps...)
			h, at := host("s-1", true), site("s-9")
			h.Capabilities = append(h.Capabilities, "join", "erase", "reset_devices", "test_hardware")
			at.Capabilities = append(at.Capabilities, "cluster", "ssh", "power", "netboot", "reboot")
			s.setAgents(h, at)
			return s
		}
	}
	for _, k := range []kind.Kind{
		kind.Reboot, kind.Netboot, kind.Repave, kind.Net, kind.WaitForAgent,
		kind.Erase, kind.ResetDevices, kind.TestHardware, kind.SSH, kind.Join, kind.Verify,
		kind.Drain,
		kind.Uncordon, kind.ProviderAction, kind.RMA,
	} {
		out[string(k)] = capable(step(k, 1), reconfig())
	}
	out["reboot bmc"] = capable(operation.Step{Kind: kind.Reboot, Mode: "bmc", MaxRetries: 1})
	out["rma return"] = capable(operation.Step{Kind: kind.RMA, Mode: "return"})
	for _, mode := range []string{
		workflow.ReportedInstall, workflow.AwaitReplacement, workflow.NothingToDrain, workflow.PowerOffNode,
		workflow.SwitchOn, workflow.SwitchOff,
		workflow.DrainNode, workflow.VerifyNode,
	} {
		out["stage "+mode] = capable(operation.Step{Kind: kind.WorkflowStage, Mode: mode, MaxRetries: 1})
	}
	for _, way := range []string{"auto", "bmc", "kexec", "bootnext", "media"} {
		out["metal "+way] = func() *stored { return newMetal(t, way, realHost("kexec", "netboot")).stored }
		out["bare metal "+way] = func() *stored {
			s := newMetal(t, way).stored
			s.world.Install = operation.Install{Counted: true, Max: 2}
			return s
		}
	}
	out["metal erase"] = func() *stored {
		s := newMetal(t, "auto", realHost("kexec")).stored
		s.op.Type, s.op.Steps[1].Kind, s.op.Steps[2].Kind = fleet.RunPlan, kind.Erase, kind.ResetDevices
		return s
	}
	out["rescue"] = func() *stored {
		s := newMetal(t, "auto", realHost("netboot")).stored
		s.op.Type, s.op.Steps = fleet.Netboot, []operation.Step{s.op.Steps[0], s.op.Steps[2]}
		return s
	}
	out["provider forgets"] = capable(operation.Step{Kind: kind.ProviderAction, Mode: workflow.ForgetAction})
	forgets := out["provider forgets"]
	out["provider forgets"] = func() *stored { s := forgets(); s.op.Type = fleet.Decommission; return s }
	further(out)
	return out
}

// further adds operations that are under way, and machines about which more is known.
func further(out map[string]func() *stored) {
	all := map[string]action{}
	for _, a := range actions() {
		all[a.name] = a
	}
	add := func(name, of string, change func(*stored), happened ...string) {
		begin := out[of]
		out[name] = func() *stored {
			s := begin()
			change(s)
			for _, h := range happened {
				if all[h].do == nil {
					s.t.Fatalf("%s: there is no action %q", name, h)
				}
				all[h].do(s)
			}
			if operation.IsTerminal(s.op.Phase) {
				s.t.Fatalf("%s has ended: %s, %+v", name, s.op.Phase, s.op.Error)
			}
			return s
		}
	}
	slow := func(s *stored) {
		for i := range s.op.Steps {
			s.op.Steps[i].Timeout = 30 * time.Minute
		}
	}
	known := func(s *stored) {
		slow(s)
		s.world.Boot.IdentityLevel, s.world.Boot.IdentityTrust = "tpm", "registered"
		hosts(func(c *fleet.Candidate) {
			c.Hardware = hwid.Facts{Serial: "S1", MACs: []string{"02:00:00:00:00:01"}}.Fingerprint()
			c.ImageDigest = "sha256:01d"
		})(s)
	}
	agentless := func(s *stored) { slow(s); s.op.Steps[1].Agentless = true; s.world.Boot.IdentityLevel = "network" }
	counted := func(s *stored) { slow(s); s.world.Install = operation.Install{Counted: true, Failed: 1, Max: 3} }

	rebooted := []string{"looks", "the site applies", "asks", "succeeds", "asks", "an installer comes"}
	cycled := []string{"looks", "the site applies", "asks", "succeeds", "an installer comes"}
	able := []string{"looks", "the site applies", "asks", "succeeds", "an installer that can do all comes"}
	more := func(list []string, then ...string) []string { return append(slices.Clone(list), then...) }

	add("entering by the next boot", "metal auto", known, rebooted[:5]...)
	add("entering by the BMC", "bare metal auto", known, cycled[:3]...)
	add("sent in by the BMC", "bare metal auto", slow, cycled[:4]...)
	add("in the installer", "metal auto", known, rebooted...)
	add("can write", "metal auto", known, more(rebooted, "can write")...)
	add("writing", "metal auto", known, more(rebooted, "can write", "asks")...)
	add("writing, attempts count", "bare metal auto", counted, more(cycled, "can write", "asks")...)
	add("writing, the last try of an attempt", "bare metal auto", func(s *stored) {
		counted(s)
		s.op.Steps[1].MaxRetries = 0
	}, more(cycled, "can write", "asks")...)
	add("writing, the last try of the last attempt", "bare metal auto", func(s *stored) {
		slow(s)
		s.op.Steps[1].MaxRetries, s.world.Install = 0, operation.Install{Counted: true, Failed: 2, Max: 3}
	}, more(cycled, "can write", "asks")...)
	add("writing, and an erasure follows", "bare metal auto", func(s *stored) {
		erase := operation.Step{Kind: kind.Erase, State: operation.StepWaiting, Name: "erase-2", Timeout: stepTimeout}
		s.op.Steps = []operation.Step{s.op.Steps[0], s.op.Steps[1], erase, s.op.Steps[2]}
	}, more(cycled, "can write", "asks")...)
	add("written", "metal auto", known, more(rebooted, "can write", "asks", "succeeds")...)
	add("restarting", "metal auto", known, more(rebooted, "can write", "asks", "succeeds", "the site applies", "asks")...)
	add("restarting, attempts count", "bare metal auto", counted,
		more(cycled, "can write", "asks", "succeeds", "the site applies", "asks")...)
	add("restarting without an agent", "bare metal auto", agentless,
		more(able, "can write", "asks", "succeeds", "the site applies", "asks")...)
	add("restarting by the BMC without an agent", "bare metal auto", agentless,
		more(able, "can write", "asks", "succeeds", "the installer goes", "the site applies", "asks")...)
	add("turned back", "metal auto", known, more(rebooted, "fails")...)
	add("going back", "metal auto", known, more(rebooted, "fails", "the site applies", "asks")...)
	add("going back by the BMC", "metal auto", known,
		more(rebooted, "fails", "the installer goes", "the site applies", "asks")...)
	add("erasing", "metal erase", known, "looks", "the site applies", "asks", "an installer comes", "asks")
	add("needs more of the installer", "bare metal auto", func(s *stored) { s.op.Steps[1].Needs = []string{"data_disks"} },
		cycled[:4]...)
	add("needs an installer for a system without an agent", "bare metal auto", agentless, cycled[:4]...)
	add("rescue by the BMC", "rescue", hosts(func(c *fleet.Candidate) { c.Capabilities = []string{"reboot"} }))
	add("rescue restarting", "rescue", slow, "looks", "the site applies", "asks", "succeeds", "asks")
	add("reboot claimed", "reboot", known, "looks", "asks", "claims")
	add("reboot canceling", "reboot", slow, "looks", "asks", "cancel for a reason")
	add("reboot by the provider", "reboot bmc", func(s *stored) { slow(s); s.setAgents(site("s-9")) }, "looks", "asks")
	add("reboot by the BMC without an agent", "reboot bmc", func(s *stored) {
		s.world.Provider, s.world.Machine.Agentless = fleet.AgentProvider, true
		s.setAgents(bmcSite(true))
		s.world.TargetAgentID, s.world.TargetBootID, s.world.TargetAgentLive = "", "", false
	}, "looks", "asks")
	add("repave in place, then a reboot", "repave", func(s *stored) {
		s.op.Steps = append(s.op.Steps[:1], operation.Step{Kind: kind.Reboot, State: operation.StepWaiting, Name: "reboot-1",
			Timeout: stepTimeout})
	}, "looks", "asks", "succeeds", "asks")
	add("netboot, then a reboot", "netboot", func(s *stored) {
		s.op.Type = fleet.Netboot
		s.op.Steps = append(s.op.Steps[:1], operation.Step{Kind: kind.Reboot, State: operation.StepWaiting, Name: "reboot-1",
			Timeout: stepTimeout})
	}, "looks", "asks", "succeeds", "asks")
	add("of a kind that is not declared", "net", func(s *stored) {
		s.op.Steps[0].Kind = "future"
		hosts(func(c *fleet.Candidate) { c.Capabilities = []string{"future"} })(s)
	}, "looks", "asks")
	add("join with a token", "join", slow, "looks", "asks", "succeeds")
	add("a late result is awaited", "net", slow, "looks", "asks")
	add("a repeat of unknown work", "net", func(s *stored) { s.world.Machine.UnresolvedCommand = "c-77" }, "looks", "asks")
	add("needs a slot", "net", func(s *stored) { s.op.Interrupts = true }, "looks")
	add("exit from maintenance", "wait_for_agent", func(s *stored) {
		s.op.Type, s.op.Steps = fleet.ExitMaintenance, []operation.Step{s.op.Steps[0], {Kind: kind.SetPhase,
			Mode: string(fleet.Ready), State: operation.StepWaiting, Name: "set_phase-1", Timeout: stepTimeout}}
	})
	add("install that is reported", "stage "+workflow.ReportedInstall, counted, "looks")
	add("the last install that is reported", "stage "+workflow.ReportedInstall, func(s *stored) {
		s.world.Install = operation.Install{Counted: true, Failed: 2, Max: 3}
	}, "looks")
	add("away for a replacement", "stage "+workflow.AwaitReplacement, known, "looks")
	add("drain of a node in a cluster", "stage "+workflow.DrainNode, func(s *stored) {
		condition(fleet.InCustomerCluster)(s)
		s.world.Stage.ClusterKnown = true
		everyAgent(func(c *fleet.Candidate) { c.Capabilities = append(slices.Clone(c.Capabilities), "cluster") })(s)
	}, "looks")
	add("a password is changed", "stage "+workflow.SwitchOff, func(s *stored) {
		s.op.Steps[0].Mode, s.world.Provider = workflow.RotateBMCPassword, fleet.AgentProvider
		everyAgent(func(c *fleet.Candidate) {
			c.Capabilities = append(slices.Clone(c.Capabilities), fleet.ChangesBMCPasswords, "provider:agent")
		})(s)
	})
	add("switched by MAAS", "stage "+workflow.SwitchOff, func(s *stored) {
		s.world.Provider = workflow.ProviderMAAS
		everyAgent(func(c *fleet.Candidate) { c.Capabilities = append(slices.Clone(c.Capabilities), "provider:maas") })(s)
	})
	for _, mode := range []string{"deploy", "release", "power_query"} {
		add("provider "+mode, "provider_action", func(s *stored) {
			s.op.Type, s.op.Steps[0].Mode, s.world.Provider = fleet.Reimage, mode, workflow.ProviderMAAS
			everyAgent(func(c *fleet.Candidate) { c.Capabilities = append(slices.Clone(c.Capabilities), "provider:maas") })(s)
		}, "looks")
	}
}
