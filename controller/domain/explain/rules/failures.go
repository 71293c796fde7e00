package rules

import (
	"cmp"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// remedy is what a reason of a failure means: on whom it is, the cause in words, and what helps.
type remedy struct {
	on    explain.Party
	text  string
	helps func(*scene) []explain.Action
}

func none(*scene) []explain.Action { return nil }

func does(actions ...func(*scene) explain.Action) func(*scene) []explain.Action {
	return func(s *scene) []explain.Action {
		var out []explain.Action
		for _, a := range actions {
			out = append(out, a(s))
		}
		return out
	}
}

func words(command, consequence string) func(*scene) explain.Action {
	return func(*scene) explain.Action { return explain.Action{Command: command, Consequence: consequence} }
}

// starting makes an action depend on a start.
func starting(st explain.Start, a func(*scene) explain.Action) func(*scene) explain.Action {
	return func(s *scene) explain.Action { return a(s).Starting(st) }
}

// startAnew is what leaves the state install_failed besides another reimage.
func startAnew(s *scene) []explain.Action {
	out := []explain.Action{newPlan(s)}
	if s.Offers.Restarts {
		out = append(out, explain.Action{Command: "ingot node transition " + s.ID() + " pending --force",
			Consequence: "starts anew with the counter at 0, by the node's plan"})
	}
	return out
}

func onMachine(before, after, consequence string) func(*scene) explain.Action {
	return func(s *scene) explain.Action {
		return explain.Action{Command: before + s.ID() + after, Consequence: consequence}
	}
}

// whileFrozen offers the thaw as long as there is a freeze.
func whileFrozen(s *scene) []explain.Action {
	if !s.Freeze.Active() {
		return nil
	}
	return []explain.Action{s.Thaw()}
}

func doctorOf(*scene) explain.Action { return explain.Doctor() }

func unlockOf(*scene) explain.Action { return explain.Unlock() }

var (
	inventory   = onMachine("ingot machine inventory ", "", "shows the machine's disks with serial number, size and model")
	installDisk = onMachine("ingot machine update ", " --install-disk serial=SERIAL", "names the one disk to write")
	imageShow   = func(s *scene) explain.Action {
		return explain.Action{Command: "ingot image show " + cmp.Or(s.Params["image_ref"], "IMAGE"),
			Consequence: "shows size, digests and kind of the image"}
	}
	agents  = words("ingot agent list", "shows which agents are connected, and what they can do")
	addInst = words("ingot image add NAME FILE --kind installer-kernel   (and --kind installer-initrd)",
		"machines can be brought into the installer")
	hostKey = onMachine("ingot machine update ", " --ssh-host-keys SHA256:FINGERPRINT",
		"takes the key that was read at the machine itself: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
	resetBMC = words("reset the BMC, or switch the machine by hand", "the power state follows again")
	config   = starting(explain.StartReconfigure, onMachine("ingot reconfigure ", " …   (corrected)",
		"applies another configuration, with the same safeguard"))
)

var (
	newPlan = onMachine("ingot node update ", " --plan PLAN", "gives the node another plan than the one that failed")
)

// remedies by reason. Every reason with which an operation can end has one.
var remedies = map[string]remedy{
	"EXECUTION_FAILED": {explain.OnOperator, "the executor tried, and it failed", does((*scene).Console)},
	"EVIDENCE_MISSING": {explain.OnOperator, "the executor says that it is done, and the machine does not show it",
		does((*scene).Console, inventory)},
	"OUTCOME_UNKNOWN": {explain.OnOperator,
		"the start of a command was granted, and no result has come: it may have acted", does((*scene).Console)},
	"NOBODY_REACHES_MACHINE": {explain.OnOperator, "nothing can reach the machine; nothing was started",
		does(agents, doctorOf)},
	"AGENT_UNAVAILABLE": {explain.OnOperator,
		"the start of the step was not granted before its time was up; nothing was started", does(agents, doctorOf)},
	"CAPABILITY_MISSING": {explain.OnAgent, "the agent cannot do this on this machine", does(agents, doctorOf)},
	"AGENT_LOCKED":       {explain.OnOperator, "the agent was locked by a person at the machine", does(unlockOf)},
	"REPAVE_NOT_WIRED": {explain.OnAgent, "this agent cannot write the disk of the system that it runs on",
		does(agents)},
	"NETBOOT_UNSUPPORTED": {explain.OnAgent,
		"the machine's next boot cannot be set: no network boot entry in its firmware, no UEFI, or no agent to set it",
		does((*scene).GiveBMC)},
	"CONFIG_ROLLED_BACK": {explain.OnOperator,
		"the machine did not keep the new configuration, and went back to the old one by itself",
		does(config, (*scene).Console)},
	"CONFIG_DRIFT": {explain.OnOperator, "another party has changed the host's configuration since it was set",
		does(onMachine("ingot audit ", "", "shows the difference"),
			starting(explain.StartReconfigure, onMachine("ingot reconfigure ", " --accept-drift DIGEST …",
				"overwrites the difference that has the digest")))},
	"NETWORK_RECONFIG_NOT_WIRED": {explain.OnOperator,
		"this host cannot be given interfaces: systemd-networkd, NetworkManager or ifupdown must run its network",
		does(starting(explain.StartReconfigure, onMachine("ingot reconfigure ", " …   (without interfaces)",
			"applies the rest of the configuration")))},
	"COMMAND_EXPIRED": {explain.OnOperator, "the command's time was up before the agent started it; nothing was done",
		does(doctorOf)},
	"GRANT_REFUSED":     {explain.OnOperator, "the controller did not grant the start", none},
	"AGENT_MEMORY_LOST": {explain.OnAgent, "the agent lost its memory; nothing was started", does(doctorOf)},
	"AGENT_STATE_ROLLED_BACK": {explain.OnOperator,
		"the agent came back with an older copy of its memory: a disk or a snapshot was restored",
		does(onMachine("ingot commands --machine ", "",
			"shows what was done since the copy, which the agent has forgotten"))},
	"CLONE_DETECTED": {explain.OnOperator, "two machines have used this machine's identity: a disk was copied",
		does(agents)},
	"STEP_TIMEOUT":      {explain.OnLimit, "the step took longer than it may, and has stopped", does((*scene).Console)},
	"EXECUTOR_PANICKED": {explain.OnAgent, "the agent met a bug in itself", does((*scene).Console)},
	"AGENT_STORAGE_FULL": {explain.OnAgent,
		"the agent cannot write its memory, because its disk is full, and so refuses work",
		does(words("free space below /var/lib/ingot on the agent's machine", "the agent takes commands again"))},
	"BMC_AUTH_FAILED": {explain.OnOperator, "the BMC rejects the password",
		does((*scene).SetCredentials, (*scene).Unpark)},
	"MEDIA_UNSUPPORTED": {explain.OnOperator, "the BMC cannot attach an image",
		does(words("start again with --path bmc", "the machine comes into the installer by the network"))},
	"MEDIA_IN_USE": {explain.OnOperator, "an image of another party is attached to the BMC",
		does(words("eject it at the BMC, then start again", "the BMC's drive is free"))},
	"BMC_SHARED":           {explain.OnOperator, "another machine names the same BMC", does(inventory)},
	"BMC_PASSWORD_REFUSED": {explain.OnOperator, "the BMC's policy refuses the new password", does((*scene).GiveBMC)},
	"BMC_UNREACHABLE":      {explain.OnBMC, "the BMC does not answer", does((*scene).GiveBMC, (*scene).SiteGet)},
	"BMC_NO_EFFECT":        {explain.OnBMC, "the BMC accepts, and the machine does not follow", does(resetBMC)},
	"DISK_RULE_NO_UNIQUE_MATCH": {explain.OnOperator,
		"the rule for the disk to write does not fit exactly one disk; nothing was written", does(inventory, installDisk)},
	"ENROLMENT_CONTESTED": {explain.OnOperator, "several systems claim one identity", does((*scene).SiteGet, agents)},
	"IMAGE_DIGEST_MISMATCH": {explain.OnOperator,
		"the bytes received, or read back from the disk, are not those of the image", does(imageShow, inventory)},
	"IMAGE_TOO_LARGE": {explain.OnOperator, "the disk is smaller than the image needs; nothing was written",
		does(imageShow, inventory, installDisk)},
	"IMAGE_UNAVAILABLE": {explain.OnAgent, "the image could not be fetched to its end",
		does(imageShow, (*scene).SiteGet)},
	"IMAGE_UNSUPPORTED": {explain.OnOperator, "the image is of a kind that cannot be written", does(imageShow)},
	"IMAGE_NOT_FOUND": {explain.OnOperator, "the image is not in the catalogue",
		does(words("ingot image list", "shows the images that there are"))},
	"CREDENTIALS_NOT_FOUND": {explain.OnOperator, "there are no BMC credentials of that name, or their key is lost",
		does((*scene).SetCredentials)},
	"DISK_WRITE_ERROR": {explain.OnOperator, "the disk refuses writes: replace it", does(inventory, installDisk)},
	"ERASE_UNSUPPORTED": {explain.OnOperator, "a disk cannot be erased by that method; nothing was started on it",
		does(inventory)},
	"DEVICE_RESET_FAILED": {explain.OnOperator,
		"an accelerator was not reset, or does not answer since; its memory may hold the tenant's data",
		does(inventory)},
	"HARDWARE_FAULT": {explain.OnOperator, "the machine's BMC says that a part of its hardware is not well",
		does(onMachine("ingot machine health ", "", "shows which part, and the BMC's event log"),
			onMachine("ingot machine identify ", "", "lights its identify light, for the person who goes there"))},
	"RAID_DEGRADED": {explain.OnOperator, "a software RAID is not whole: replace its lost disk", does(inventory)},
	"HARDWARE_TEST_FAILED": {explain.OnOperator, "a test of the hardware has found a part that does not work: replace it",
		does(onMachine("ingot machine tests ", "", "names the part and what was measured"))},
	"HARDWARE_TEST_UNFINISHED": {explain.OnOperator,
		"the tests of the hardware have no result; a machine that restarts under load has a fault",
		does(inventory)},
	"WRONG_SYSTEM_BOOTED": {explain.OnOperator,
		"the machine was restarted, and another system has come up than the one that was to", does((*scene).Console)},
	"PHONE_HOME_MISSING": {
		explain.OnOperator,
		"the disk was written, and its system, which has no agent, has not phoned home",
		does((*scene).Console, (*scene).SiteGet),
	},
	"INSTALLER_SILENT": {explain.OnDHCP, "the machine was sent into the installer, which has not reported",
		does((*scene).Console)},
	"INSTALLER_MISSING": {explain.OnOperator, "the image catalogue has no installer for the machine", does(addInst)},
	"NO_BOOT_PATH": {explain.OnOperator, "no agent can bring the machine into the installer",
		does((*scene).GiveBMC,
			onMachine("ingot token issue ", "", "gives a token with which an agent on the machine enrols"))},
	"SITE_AGENT_SILENT": {explain.OnAgent,
		"the site's agent did not take over what the machine is to boot in time; nothing was started",
		does(agents, (*scene).SiteGet)},
	"INVALID_FIELD": {explain.OnOperator, "what was asked for makes no sense to the machine; nothing was done", none},
	"FLEET_FROZEN":  {explain.OnOperator, "the fleet was frozen: the controller did not grant the start", whileFrozen},
	"BUDGET_REQUIRED": {explain.OnOperator,
		"the operation held no slot of a budget that limits it: the controller did not grant the start",
		does(words("ingot budget slots", "shows which machines hold slots"))},
	"MACHINE_QUARANTINED": {explain.OnOperator, "the machine was quarantined: the controller did not grant the start",
		does((*scene).Clear)},
	"MACHINE_BLOCKED": {explain.OnOperator,
		"the machine was flagged RMA or Retired meanwhile: the controller did not grant the start", none},
	"SESSION_SUPERSEDED": {explain.OnAgent, "a newer session of the same agent had taken over; nothing was started",
		does(agents)},
	"CANCELED_BY_REQUEST": {explain.OnOperator, "a caller cancelled it",
		does(onMachine("ingot audit ", "", "shows who, and why"))},
	"SETTLED_BY_OPERATOR": {explain.OnOperator, "an operator has settled an unknown outcome",
		does(onMachine("ingot audit ", "", "shows who, and why"))},
	"SSH_NOT_CONFIGURED": {explain.OnOperator, "the machine names no SSH endpoint, or no SSH credentials",
		does(onMachine("ingot machine update ", " --ssh-endpoint HOST:22 --ssh-credentials-ref NAME",
			"scripts can be run on the machine"))},
	"SSH_HOST_KEY_UNKNOWN": {
		explain.OnOperator,
		"no host key of the machine's SSH server is known; nothing was sent to it",
		does(hostKey),
	},
	"SSH_HOST_KEY_MISMATCH": {
		explain.OnOperator,
		"the SSH server shows another key than the known one; nothing was sent " +
			"to it: another machine answers there, or it was reinstalled",
		does(hostKey),
	},
	"SSH_AUTH_FAILED": {explain.OnOperator, "the SSH server refuses the user or the key",
		does(words("put the public key into the user's authorized_keys", "the site's agent can log in"))},
	"SSH_UNREACHABLE":  {explain.OnOperator, "the machine's SSH server does not answer", does((*scene).Console)},
	"MAAS_UNREACHABLE": {explain.OnProvider, "the MAAS region does not answer, or has no time", does(maasList, maasSet)},
	"MAAS_AUTH_FAILED": {explain.OnOperator, "MAAS refuses the API key; nothing was done", does(maasSet)},
	"MAAS_REFUSED":     {explain.OnOperator, "MAAS refuses what was asked of it; nothing was done", does(maasPage)},
	"MAAS_MACHINE_GONE": {explain.OnOperator, "MAAS has no such machine, or has another record of it by now",
		does(maasList)},
	"MAAS_MACHINE_AMBIGUOUS": {explain.OnOperator,
		"several machines in MAAS have the machine's MAC addresses: delete the wrong ones there", does(maasList)},
	"MAAS_FAILED": {explain.OnProvider,
		"what MAAS was asked to do has failed, as MAAS says itself, or took too long", does(maasPage)},
	"MAAS_STATUS_CONFLICT": {explain.OnOperator,
		"the machine's status in MAAS does not fit: another party has worked on it there", does(maasPage)},
	"CLUSTER_NOT_FOUND": {explain.OnOperator, "no cluster of that name is stored",
		does(words("ingot cluster list", "shows the clusters that are stored"), clusterSet)},
	"CLUSTER_NOT_CONFIGURED": {explain.OnOperator, "neither the step nor the machine names a cluster",
		does(onMachine("ingot machine update ", " --target-cluster-ref NAME", "names the machine's cluster"))},
	"CLUSTER_UNREACHABLE": {explain.OnProvider,
		"the cluster's API server does not answer, or not as the cluster whose CA is known", does(clusterGet, clusterSet)},
	"CLUSTER_ACCESS_DENIED": {explain.OnOperator,
		"the cluster's API server refuses our credentials, or what they are used for", does(clusterSet)},
	"CLUSTER_OTHER_MEMBER": {explain.OnOperator, "the machine's kubelet belongs to another cluster; it was left there",
		does(kubeadmReset)},
	"CLUSTER_NODE_MISMATCH": {explain.OnOperator, "the Node of that name is another machine; nothing was done to it",
		does(nodeDescribe)},
	"CLUSTER_NODE_NOT_READY": {explain.OnProvider, "the cluster does not show the machine's Node as it should be",
		does(nodeDescribe, (*scene).Console)},
	"DRAIN_BLOCKED": {explain.OnOperator,
		"pods that may not be evicted are left on the machine; the drain took its own cordon back", does(podsOf)},
	"KUBEADM_FAILED": {explain.OnOperator, "kubeadm has not joined the machine to the cluster",
		does((*scene).Console)},
	"SCRIPT_DIGEST_MISMATCH": {
		explain.OnOperator,
		"the script's bytes are not those that its digest names; it was not run",
		none,
	},
	"STAGE_CHECK_FAILED": {explain.OnOperator, "the hardware or the provider does not show what the stage was to achieve",
		none},
	"STAGE_NOT_WIRED":            {explain.OnOperator, "this version does not do that stage", none},
	"STEP_KIND_NOT_WIRED":        {explain.OnOperator, "this version does not do steps of this kind", none},
	"INSTALL_ATTEMPTS_EXHAUSTED": {explain.OnOperator, "the third install attempt has failed", startAnew},
}

// failure explains a reason and the message that came with it.
func (s *scene) failure(code, message string) verdict {
	if code == "GRANT_REFUSED" {
		code, message = refusedFor(message)
	}
	r, ok := remedies[code]
	if !ok {
		r = remedies["EXECUTION_FAILED"]
	}
	v := verdict{Cause: explain.Cause{Reason: code, Text: r.text}, on: r.on, actions: r.helps(s)}
	v.who = s.party(r.on)
	if message != "" && !strings.Contains(message, r.text) {
		v.Facts = append(v.Facts, message)
	}
	if refine := refinements[code]; refine != nil {
		refine(s, &v, message)
	}
	return v
}

// refusedFor returns the controller's reason in the message of an agent whose grant was refused.
func refusedFor(message string) (code, rest string) {
	code, rest, ok := strings.Cut(message, ": ")
	if _, known := baremetalv1.Reason_value[code]; ok && known {
		return code, rest
	}
	return "GRANT_REFUSED", message
}

func (s *scene) party(p explain.Party) string {
	switch p {
	case explain.OnBMC:
		return s.bmc()
	case explain.OnProvider:
		if s.inCluster() {
			return s.cluster()
		}
		return "provider " + s.Provider()
	case explain.OnAgent:
		if s.exec != nil {
			return "agent " + s.exec.AgentID
		}
		return "an agent"
	case explain.OnOperator:
		return "an operator"
	case explain.OnLimit:
		return "a limit"
	case explain.OnDHCP:
		return "the machine's network"
	}
	return ""
}

// exactly takes the message for the cause: the engine wrote it, and has more facts.
func exactly(_ *scene, v *verdict, message string) {
	if message != "" {
		v.Text = message
	}
}

// refinements make a cause more exact where the message or the facts allow it.
var refinements = map[string]func(*scene, *verdict, string){
	"FLEET_FROZEN": func(s *scene, v *verdict, _ string) {
		if s.Freeze.Active() {
			v.Reason = s.Freeze.Reason()
		}
	},
	"BMC_AUTH_FAILED": func(s *scene, v *verdict, message string) {
		v.who = "correct credentials for " + s.bmc()
		switch {
		case strings.Contains(message, "certificate"):
			v.Text = s.bmc() + " shows a certificate that is not the known one, or not trusted; no password was sent"
		case parked(message):
			v.Text = s.bmc() + " rejects the password of credentials " + cmp.Or(s.spec.GetBmcCredentialsRef(), "(none)") +
				"; it is left alone, so that it does not lock the account, until they change"
		default:
			v.Text = s.bmc() + " rejects the password of credentials " + cmp.Or(s.spec.GetBmcCredentialsRef(), "(none)") +
				"; it is not tried again until they change"
		}
	},
	"BMC_UNREACHABLE": func(s *scene, v *verdict, message string) {
		v.Text = s.bmc() + " does not answer"
		if strings.Contains(message, "understood") {
			v.Text = "at " + s.spec.GetBmcEndpoint() + " something answers that speaks neither Redfish nor IPMI"
		}
	},
	"BMC_NO_EFFECT": func(s *scene, v *verdict, _ string) {
		v.Text = s.bmc() + " accepts, and the machine does not follow"
	},
	"DISK_RULE_NO_UNIQUE_MATCH": func(s *scene, v *verdict, message string) {
		rule := cmp.Or(s.spec.GetInstallDisk(), "(the only disk that may be written)")
		v.Text = "the rule for the disk to write, " + rule + ", does not fit exactly one disk; nothing was written"
		if message != "" {
			v.Text += ": " + message
		}
	},
	"CONFIG_ROLLED_BACK": func(_ *scene, v *verdict, message string) {
		if strings.Contains(message, "contact with the controller") {
			v.Text = "with the new configuration the machine could not reach the controller, so it went back to the old one " +
				"by itself"
		}
	},
	"INSTALLER_SILENT": func(s *scene, v *verdict, _ string) {
		if s.entering() {
			*v = s.bootFailure()
			v.Reason = cmp.Or(v.Reason, "INSTALLER_SILENT")
		}
	},
	"AGENT_UNAVAILABLE": func(s *scene, v *verdict, message string) {
		switch {
		case s.cmd != nil && s.cmd.State == operation.Expired && !strings.Contains(message, "stopped by itself"):
			v.Text = s.Untaken(s.cmd) + "; its time was up " + s.Ago(s.cmd.Deadline) + ", and nothing was started"
		case s.lacksCommand():
			v.Text = "no agent could take the next attempt before the step's time was up"
		}
	},
	"INSTALL_ATTEMPTS_EXHAUSTED": func(s *scene, v *verdict, _ string) {
		code, said := s.exhaustedBy()
		if code == "" || remedies[code].text == "" {
			return
		}
		v.Text += ": " + remedies[code].text
		v.Facts = append(v.Facts, "each failed attempt is one for the counter; the last one ended with "+code+": "+said)
		v.actions = append(remedies[code].helps(s), v.actions...)
	},
	"CREDENTIALS_NOT_FOUND": whichCredentials,
	"KUBEADM_FAILED":        whyKubeadm,
	"EXECUTION_FAILED":      exactly,
	"EVIDENCE_MISSING":      exactly,
	"NO_BOOT_PATH":          exactly, "CAPABILITY_MISSING": exactly, "NETBOOT_UNSUPPORTED": exactly,
	"INVALID_FIELD": func(s *scene, v *verdict, message string) {
		if message != "" {
			v.Text += ": " + message
		}
	},
}
