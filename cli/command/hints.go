package command

import (
	"google.golang.org/grpc/codes"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// hints has the next step for each reason. {machine}, {operation} and {command} are filled in.
var hints = map[pb.Reason]string{
	pb.Reason_MACHINE_NOT_FOUND:   "ingot list shows the machines that there are",
	pb.Reason_OPERATION_NOT_FOUND: "ingot ops shows the operations that there are",
	pb.Reason_PLAN_NOT_FOUND:      "ingot plan list shows the plans that there are",
	pb.Reason_AGENT_NOT_FOUND:     "ingot agent list shows the agents that there are",
	pb.Reason_TOKEN_NOT_FOUND:     "ingot token list shows the tokens that there are",
	pb.Reason_COMMAND_NOT_FOUND:   "ingot commands --machine {machine} shows the machine's commands",
	pb.Reason_INVENTORY_NOT_FOUND: "an inventory comes with the machine's agent: ingot token issue {machine}",
	pb.Reason_IMAGE_NOT_FOUND:     "ingot image list shows the images that there are",
	pb.Reason_SITE_NOT_FOUND:      "ingot site list shows the sites that there are",
	pb.Reason_CREDENTIALS_NOT_FOUND: "ingot bmc credentials list, ingot ssh credentials list and ingot maas list show " +
		"the names that there are",
	pb.Reason_CLUSTER_NOT_FOUND: "ingot cluster list shows the clusters that there are; ingot cluster set adds one",
	pb.Reason_SCRIPT_NOT_FOUND:  "ingot script list shows the scripts that there are",
	pb.Reason_WEBHOOK_NOT_FOUND: "ingot webhook list shows the webhooks that there are",
	pb.Reason_DELIVERY_NOT_FOUND: "ingot webhook deliveries shows those that there are; ended ones are kept for a while " +
		"only",

	pb.Reason_SIGN_ON_OFF:            "have an admin make a token: ingot token create NAME",
	pb.Reason_SIGN_ON_UNAVAILABLE:    "wait for the provider, or use a token: --token-file",
	pb.Reason_SIGN_ON_EXPIRED:        "ingot login",
	pb.Reason_SIGN_ON_REVOKED:        "ingot login",
	pb.Reason_ROLES_CHANGED:          "ingot whoami shows the roles; call again",
	pb.Reason_NO_ROLE:                "ingot whoami shows the groups; ask an admin for: ingot role grant",
	pb.Reason_OUTSIDE_SELECTION:      "ingot whoami shows which machines the roles are for",
	pb.Reason_FIELD_IN_USE:           "ask an admin to change it; ingot budget list and ingot whoami show its uses",
	pb.Reason_SELECTION_TOO_NARROW:   "ingot whoami shows which machines the roles are for",
	pb.Reason_AUDIT_NAME_NOT_FOUND:   "ingot audit shows whom and what the log knows",
	pb.Reason_ROLE_BINDING_NOT_FOUND: "ingot role list shows the role bindings that there are",
	pb.Reason_SESSION_NOT_FOUND:      "ingot session list shows the sessions that there are",

	pb.Reason_HARDWARE_FAULT:           "ingot machine health {machine}",
	pb.Reason_RAID_DEGRADED:            "ingot machine inventory {machine}",
	pb.Reason_HARDWARE_TEST_FAILED:     "ingot machine tests {machine} names the part; then ingot test {machine}",
	pb.Reason_HARDWARE_TEST_UNFINISHED: "ingot test {machine} tests again; nothing was changed",

	pb.Reason_REQUEST_ID_REUSED: "that request id belongs to other work; leave --request-id out to get a new one",
	pb.Reason_IDENTITY_LEVEL_TOO_LOW: "record the machine's TPM: ingot netboot {machine}; or lower the level: ingot " +
		"identity require network --site SITE",
	pb.Reason_MAC_ADDRESS_IN_USE: "another machine has that MAC address; ingot list -o json | grep for it",
	pb.Reason_BMC_IN_USE:         "another machine of the site has that BMC; ingot list -o json | grep for it",
	pb.Reason_EXTERNAL_ID_IN_USE: "another machine has that external id",
	pb.Reason_PLAN_IMMUTABLE:     "a plan that was used stays as it is: create it under another plan_id",
	pb.Reason_CURSOR_EXPIRED:     "start again without the cursor",
	pb.Reason_VERSION_CONFLICT:   "another caller changed it meanwhile: read it again and repeat the change",
	pb.Reason_MACHINE_DELETED:    "an identity that was deleted stays deleted: register under another machine id",

	pb.Reason_ROLLOUT_NOT_FOUND: "ingot rollout list shows the rollouts that there are",
	pb.Reason_ROLLOUT_CHANGED:   "look again: ingot rollout preview, or ingot rollout get; then name the new digest",
	pb.Reason_ROLLOUT_EMPTY:     "ingot rollout preview says why each machine is refused",
	pb.Reason_ROLLOUT_TOO_LARGE: "narrow --filter, such as by site or rack",
	pb.Reason_ROLLOUT_ENDED: "ingot rollout get shows how it ended; preview and create another one for what is " +
		"left",
	pb.Reason_ROLLOUT_NOT_APPROVED:  "another administrator must: ingot rollout approve ROLLOUT --digest DIGEST",
	pb.Reason_ROLLOUT_SELF_APPROVAL: "have another administrator look at it and approve it",
	pb.Reason_ROLLOUT_STOPPED:       "wait for its end: ingot rollout watch; then create another one for what is left",

	pb.Reason_APPROVAL_REQUIRED: "ingot rollout preview --filter machine_id={machine} with the same work, then ingot " +
		"rollout create; another approver begins it",
	pb.Reason_APPROVAL_POLICY_NOT_FOUND: "ingot approval-policy list shows the policies that there are",

	pb.Reason_BUDGET_SLOT_IN_USE: "ingot why MACHINE shows what it does; ingot cancel OPERATION stops it",
	pb.Reason_FLEET_FROZEN:       "ingot server thaw lifts it, once what the message names has been looked into",
	pb.Reason_WRONG_PHASE: "ingot enter-maintenance {machine}, then try again; ingot machine get {machine} " +
		"shows the phase",
	pb.Reason_MACHINE_BUSY:       "ingot watch {operation} to wait for it, ingot cancel {operation} to stop it",
	pb.Reason_OPERATION_FINISHED: "ingot ops get {operation} shows how it ended",
	pb.Reason_COMMAND_UNRESOLVED: "look at the machine, then: ingot settle {machine} {command} --verdict " +
		"happened|did-not-happen --comment \"how you know\"",
	pb.Reason_MACHINE_BLOCKED:     "ingot why {machine} says who blocked it, and what ends that",
	pb.Reason_MACHINE_QUARANTINED: "find out why with ingot why {machine}, then: ingot clear {machine}",
	pb.Reason_NOTHING_TO_SETTLE:   "ingot machine get {machine} shows the unresolved command, if there is one",
	pb.Reason_MACHINE_HAS_NO_IMAGE: "name one with --image, or give the machine a default: " +
		"ingot machine update {machine} --default-image-ref IMAGE",
	pb.Reason_TOKEN_NOT_REVOCABLE: "the token was used; revoke its agent: ingot agent list, ingot agent revoke AGENT",
	pb.Reason_IMAGE_EXISTS:        "ingot image show tells what is there; add yours under another name",
	pb.Reason_IMAGE_IN_USE: "wait for the operation, or give the machine another default: ingot machine update " +
		"{machine} --default-image-ref IMAGE",
	pb.Reason_CREDENTIALS_IN_USE: "give the machine others first: ingot machine update {machine} --bmc-credentials " +
		"NAME, --ssh-credentials NAME, or --provider-ref NAME of another MAAS region",
	pb.Reason_SCRIPT_EXISTS: "scripts never change: add yours under another name, such as one with a version",
	pb.Reason_CLUSTER_IN_USE: "give the machine another first: ingot machine update {machine} --target-cluster-ref " +
		"NAME",
	pb.Reason_SCRIPT_IN_USE:  "ingot ops shows the operations that need it; wait for them, or cancel them",
	pb.Reason_WEBHOOK_EXISTS: "ingot webhook update changes the one that is there; or choose another --name",
	pb.Reason_WEBHOOK_URL_REFUSED: "https only, and no loopback or link-local address unless webhooks.allow_… in the " +
		"controller's configuration say so",

	pb.Reason_BEARER_MISSING: "give a token: --token-file, INGOT_TOKEN_FILE, INGOT_TOKEN, or a context",
	pb.Reason_BEARER_INVALID: "the server does not know this token; ingot config current-context shows what is used",
	pb.Reason_SCOPE_TOO_SMALL: "this token may not do that; use one with the scope that the message names " +
		"(ingot config use-context)",

	pb.Reason_DATABASE_UNAVAILABLE:  "the controller has lost its database; try again when it is back",
	pb.Reason_CONTROLLER_DRAINING:   "the controller is stopping; try again in a moment",
	pb.Reason_RATE_LIMITED:          "slow down and try again",
	pb.Reason_TOO_MANY_STREAMS:      "close watches without a reader: the message names the caller with too many",
	pb.Reason_CONTROLLER_OVERLOADED: "the controller has more to do than it can; try again in a moment",
	pb.Reason_IMAGE_STORE_FULL: "ingot image list, and ingot image remove what is not needed; or give the " +
		"controller a bigger images_dir",
	pb.Reason_IMAGE_STORE_UNAVAILABLE: "try again in a moment; ingot-controller doctor looks at the bucket",
	pb.Reason_IMAGE_STORE_REFUSED:     "ingot-controller doctor there says what to correct under images.bucket",

	pb.Reason_NODE_TRANSITION_ILLEGAL: "ingot node get {machine} shows where the node may go from here",
	pb.Reason_NODE_GUARD_FAILED: "ingot node get {machine} shows where the node may go now; ingot why {machine} " +
		"why it is where it is",
	pb.Reason_NODE_NOT_IN_CLUSTER: "there is nothing to drain: ingot node transition {machine} retired, or ingot " +
		"decommission {machine}",
	pb.Reason_NODE_IDENTITY_DELETED: "a deleted node stays deleted: register the machine under another id",
	pb.Reason_REPORT_REFUSED: "ingot node get {machine} shows the node's state; only pending and installing " +
		"nodes take reports",
	pb.Reason_DISCOVERY_NOT_FOUND: "ingot site discovered shows the machines that asked to boot",

	pb.Reason_WORKFLOW_NOT_FOUND: "ingot workflow list shows the workflows that there are",
	pb.Reason_WORKFLOW_ACTIVE: "ingot workflow list --machine {machine} --open shows it; ingot workflow act " +
		"steers or cancels it",
	pb.Reason_WORKFLOW_ACTION_ILLEGAL: "ingot workflow get shows its state and the actions that it allows",
	pb.Reason_DHCP_RELAYS_NOT_WIRED:   "not built: put a site agent on the machines' own network, and leave relays empty",
	pb.Reason_STAGE_NOT_WIRED:         "not built: docs/reference/workflow-stages.md lists the stages",
	pb.Reason_STAGE_CHECK_FAILED:      "ingot why {machine} shows what is seen; then ingot workflow act",

	pb.Reason_OPERATION_TYPE_NOT_WIRED: "this server cannot run that yet; ingot server info lists what it cannot do",
	pb.Reason_STEP_KIND_NOT_WIRED:      "this server cannot run that step yet; ingot server info lists what it cannot do",
	pb.Reason_EXPLAIN_NOT_WIRED:        "until it can: ingot machine get {machine} and ingot ops --machine {machine}",
	pb.Reason_TIMELINE_NOT_WIRED:       "until it can: ingot ops --machine {machine} and ingot audit {machine}",
	pb.Reason_NETWORK_RECONFIG_NOT_WIRED: "this host cannot be given interfaces (the message says why); leave " +
		"interfaces out, or run systemd-networkd, NetworkManager or ifupdown on it",

	pb.Reason_OUTCOME_UNKNOWN: "whether it happened is unknown: ingot commands {operation}, look at the machine, " +
		"then: " +
		"ingot settle {machine} {command} --verdict happened|did-not-happen --comment \"how you know\"",
	pb.Reason_CONFIG_DRIFT: "look at the difference; to overwrite it: ingot reconfigure {machine} " +
		"--accept-drift DIGEST …, with the digest above",
	pb.Reason_EVIDENCE_MISSING:   "the agent claims success and nothing confirms it: ingot logs {operation}",
	pb.Reason_AGENT_UNAVAILABLE:  "no agent was there to do it: ingot agent list, then try again",
	pb.Reason_CAPABILITY_MISSING: "no agent can do this for the machine: ingot agent list -o wide shows capabilities",
	pb.Reason_AGENT_LOCKED:       "a person at the machine locked its agent: ingot agent list shows the reason",
	pb.Reason_REPAVE_NOT_WIRED:   "this agent cannot write images yet",
	pb.Reason_CONFIG_ROLLED_BACK: "the machine went back to the old configuration by itself: ingot logs {operation}",
	pb.Reason_IMAGE_DIGEST_MISMATCH: "the bytes are not those that were announced: check the digest, and fetch the file " +
		"again",
	pb.Reason_IMAGE_UNAVAILABLE: "the image did not come in whole: check its source, and repeat",
	pb.Reason_IMAGE_UNSUPPORTED: "an image is a whole disk with a GUID partition table, as raw, zst, gz, xz or qcow2",
	pb.Reason_IMAGE_TOO_LARGE: "the disk is too small: ingot image show tells what is needed; --install-disk chooses " +
		"the disk",
	pb.Reason_DISK_RULE_NO_UNIQUE_MATCH: "ingot machine inventory {machine} shows the disks; then: " +
		"ingot machine update {machine} --install-disk serial=…",
	pb.Reason_BMC_AUTH_FAILED: "the BMC refuses the password; it is not tried again before: ingot bmc credentials " +
		"set NAME --username USER",
	pb.Reason_BMC_UNREACHABLE: "check --bmc-endpoint of {machine}, and the network between the site agent and " +
		"the BMC",
	pb.Reason_NO_BOOT_PATH: "give the machine an agent or a BMC: ingot machine update {machine} " +
		"--bmc-endpoint HOST --bmc-credentials NAME",
	pb.Reason_WRONG_SYSTEM_BOOTED: "look at {machine}'s console: boot order, network boot and the installer's " +
		"kernel; its evidence names the system that came up",
	pb.Reason_INSTALLER_MISSING: "ingot image add NAME vmlinuz --kind installer-kernel, and the initramfs with " +
		"--kind installer-initrd",
	pb.Reason_SITE_AGENT_SILENT: "ingot site list shows whether the site's agent follows; ingot agent list whether " +
		"it is connected",
	pb.Reason_INSTALLER_SILENT: "look at the machine's console: did it get an address and the boot files? ingot " +
		"site leases SITE",
	pb.Reason_CLUSTER_NOT_CONFIGURED: "ingot machine update {machine} --target-cluster-ref NAME; ingot cluster list " +
		"shows the names",
	pb.Reason_CLUSTER_UNREACHABLE: "can the site's agent reach the API server, and is its CA the right one? ingot " +
		"cluster list",
	pb.Reason_CLUSTER_ACCESS_DENIED: "give the credentials what docs/howto/clusters.md lists, or set them again: " +
		"ingot cluster set",
	pb.Reason_CLUSTER_OTHER_MEMBER:   "take the machine out of that cluster first; or ingot reimage {machine}",
	pb.Reason_CLUSTER_NODE_MISMATCH:  "another machine has the Node of this name: look at both before you go on",
	pb.Reason_CLUSTER_NODE_NOT_READY: "kubectl describe node shows what is missing; ingot logs {operation} what was seen",
	pb.Reason_DRAIN_BLOCKED:          "look at the pods that the message names, then try again",
	pb.Reason_KUBEADM_FAILED:         "ingot logs {operation} has what kubeadm says",
	pb.Reason_MAAS_UNREACHABLE: "look at MAAS and the way to it from the machine's site; ingot maas list shows " +
		"the address",
	pb.Reason_MAAS_AUTH_FAILED: "give the region a key that works: ingot maas set NAME --endpoint URL --key-file " +
		"FILE",
	pb.Reason_MAAS_FAILED: "look at the machine's page in MAAS; ingot logs {operation} shows what was asked " +
		"of it",
	pb.Reason_MAAS_REFUSED:           "correct what the message names, in MAAS or in the machine's record",
	pb.Reason_MAAS_MACHINE_GONE:      "find out who has deleted the machine in MAAS",
	pb.Reason_MAAS_MACHINE_AMBIGUOUS: "delete the wrong machines in MAAS, then try again",
	pb.Reason_MAAS_STATUS_CONFLICT:   "another party has worked on the machine in MAAS: look at its page there first",
	pb.Reason_EXECUTION_FAILED:       "ingot logs {operation} shows why",
	pb.Reason_STEP_TIMEOUT:           "ingot logs {operation} shows how far it got",
	pb.Reason_CLONE_DETECTED:         "two machines speak with one identity: find the copy before you go on",
}

// hintsByCode helps where the error carries no reason, as errors of the connection do.
var hintsByCode = map[codes.Code]string{
	codes.Unavailable: "check --server and --ca-file, and that the controller runs; ingot config view shows what is " +
		"configured",
	codes.Unauthenticated: "give a token: --token-file, INGOT_TOKEN_FILE, INGOT_TOKEN, or a context",
	codes.Unimplemented:   "the server is older than this command line, or it is not an Ingot controller",
}
