// Package evidence names the keys of the evidence that is read back before a step counts as done. Agents write them,
// the controller decides by them, and operators read them.
package evidence

import "fmt"

// The keys.
const (
	// BootIDBefore and BootIDAfter are kernel boot ids (/proc/sys/kernel/random/boot_id) around a reboot.
	BootIDBefore = "boot_id_before"
	BootIDAfter  = "boot_id_after"
	// HostAgentID and HostBootID are the agent and the boot of the machine's own system, as last reported before the
	// grant. HostImageDigest is that system's own claim of the image that it was made from.
	HostAgentID     = "host_agent_id"
	HostBootID      = "host_boot_id"
	HostImageDigest = "host_image_digest"
	// HostHardware is the fingerprint of the machine that this system ran on.
	HostHardware = "host_hardware"
	// HardwareRemarks is what of the machine's hardware was other, or not read, when the system came up: no value of
	// another machine.
	HardwareRemarks = "hardware_remarks"
	// BootedSystem is which system came up after a boot, and BootedBy what it was recognized by: "installer_session",
	// "operation_token", "agent_identity", "provider", "phone_home",
	// "probe".
	BootedSystem = "booted_system"
	BootedBy     = "booted_system_by"
	// PhonedHomeAt is when a system without the agent has phoned home (RFC 3339, the site agent's clock), PhonedHomeFrom
	// the address of the call. InstanceID and SystemHostname are its own names. SystemSSHKey is its public host key as in
	// known_hosts, without a name.
	PhonedHomeAt   = "phoned_home_at"
	PhonedHomeFrom = "phoned_home_from"
	InstanceID     = "instance_id"
	SystemHostname = "system_hostname"
	SystemSSHKey   = "system_ssh_key"
	// ProbeAnsweredAt is when a machine without the agent has answered its site's probe (RFC 3339, the site agent's
	// clock), ProbeAddress where, and ProbeAnsweredBy how: "open" or "refused", its port 22.
	ProbeAnsweredAt = "probe_answered_at"
	ProbeAnsweredBy = "probe_answered_by"
	ProbeAddress    = "probe_address"
	// PreflightDisk is the disk that an installer would write, read before it was permitted to.
	PreflightDisk = "preflight_disk"
	// Refused is why the installer would not write, RefusedWhy the same in words, RefusedAgain whether another try may end
	// otherwise.
	Refused      = "refused"
	RefusedWhy   = "refused_why"
	RefusedAgain = "refused_retryable"
	// BootNext is the one-shot boot entry as the firmware holds it.
	BootNext = "boot_next"
	// BootNextProof is the proof of the setting where a BMC holds it. It is "read" when it reads back, and "pending" when
	// it reads back as a setting that the next reset applies. It is "ordered" when it was accepted for the next reset and
	// is not readable before.
	BootNextProof = "boot_next_proof"
	// ImageDigest is "sha256:<hex>" of the raw bytes as read back from the disk.
	ImageDigest = "image_digest"
	// MirrorDisk is the second disk of a RAID 1, with the same bytes.
	MirrorDisk = "mirror_disk"
	// DataDisks lists the data disks in JSON, each with path, disk, PARTUUID, and whether its file system was made.
	DataDisks = "data_disks"
	// AddedTo is the system of the image that files were added to, and its place. AddedFiles lists them in JSON, each with
	// path, mode, size in bytes and SHA-256. They were added after the image had been read back.
	AddedTo    = "added_to"
	AddedFiles = "added_files"
	// ConfigDigest is the digest of the host configuration as read back.
	ConfigDigest = "config_digest"
	// DevicesReset lists the accelerators that were reset and answer again, by their PCI addresses.
	DevicesReset = "devices_reset"
	// HardwareTests is what tests of the hardware have found, in JSON: a list of HardwareResult.
	// HardwareModel is the machine's maker and model.
	HardwareTests = "hardware_tests"
	HardwareModel = "hardware_model"
	// EraseMethod is how the disks were erased, as verified.
	EraseMethod = "erase_method"
	// BootPath is the way that a machine was brought into the installer: "bootnext", "kexec", "bmc" or "media".
	BootPath = "boot_path"
	// Installer is the agent that wrote the disks from a netbooted system.
	Installer = "installer_agent_id"
	// IdentityLevel is how the installer proved which machine it is: "tpm", "media" or "network". IdentityTrust goes with
	// "tpm": "vendor" or "first-use". Corroboration goes with "network": "uncorroborated" where no BMC has seen the same.
	IdentityLevel = "identity_level"
	IdentityTrust = "identity_trust"
	Corroboration = "identity_corroboration"
	// PowerOffSeenAt and PowerOnSeenAt are when the BMC was read back so (RFC 3339, UTC, the agent's clock).
	PowerOffSeenAt = "power_off_seen_at"
	PowerOnSeenAt  = "power_on_seen_at"
	// MediaInsertedAt is when the BMC has shown the image that it was to attach (RFC 3339, UTC, the agent's clock).
	MediaInsertedAt = "media_inserted_at"
	// BMCPasswordAcceptedAt is when the BMC has taken a log-in with its new password (RFC 3339, UTC, the agent's clock).
	BMCPasswordAcceptedAt = "bmc_password_accepted_at"

	// PowerByOthers lists the changes of the power that the BMC showed and that no command of ours had ordered. An entry
	// is such as "on at 2026-01-02T03:04:05Z" (the agent's clock). Commas separate at most 8.
	PowerByOthers = "power_by_others"
	// PowerChangesSeen lists, in the same form, the changes that the BMC showed without a command of the operation for
	// them (the site agent's clock).
	PowerChangesSeen = "power_changes_seen"
	// PowerOffForced is "true" when the system did not go down by itself.
	PowerOffForced = "power_off_forced"
	// BMCProtocol is how the BMC was spoken to: "redfish" or "ipmi".
	BMCProtocol = "bmc_protocol"
	// ProviderSaid is the machine's status in its provider's own words, when the provider showed what was asked for.
	ProviderSaid = "provider_status"
	// Deployed is what the provider has deployed, in its own words.
	Deployed = "provider_deployed"
	// Redeployed is "true" where the provider has taken the order to write a system.
	Redeployed = "provider_redeployed"
	// ExitCode is that of a script, as the machine has kept it; 128 and more stand for a signal.
	ExitCode = "exit_code"
	// ScriptSHA256 is the digest of the script as it was read back from the machine before it was started.
	ScriptSHA256 = "script_sha256"
	// ClusterName is the cluster that a machine was joined to, seen in, or drained from.
	ClusterName = "cluster"
	// JoinedCluster is the digest of the CA key ("sha256:<hex>") that the machine's kubelet trusts.
	JoinedCluster = "joined_cluster_ca"
	// NodeReadyAt is since when the Node reports to be ready (RFC 3339, the cluster's clock). NodeIdentity is the value by
	// which it was recognized as the machine: "boot_id", "system_uuid" or "name". KubeletVersion is its kubelet's version.
	NodeReadyAt    = "node_ready_at"
	NodeIdentity   = "node_identity"
	KubeletVersion = "kubelet_version"
	// NodeDrained is the number of pods that were evicted, NodeRemoved that the Node was read back as gone, and
	// NodeSchedulable that it takes pods.
	NodeDrained     = "node_drained"
	NodeRemoved     = "node_removed"
	NodeSchedulable = "node_schedulable"
	// SSHHostKey is the fingerprint of the host key that the machine has shown.
	SSHHostKey = "ssh_host_key"
)

// The evidence of each disk to erase, behind the prefix of ErasedDisk.
const (
	ErasedID           = "id" // its name below /dev/disk/by-id
	ErasedMethod       = "method"
	ErasedVerification = "verification" // what was read back
	ErasedSeconds      = "seconds"
	ErasedError        = "error" // why it is not erased, instead of the three above
	ErasedNotUsed      = "not_used"
	ErasedHidden       = "hidden_areas"
	ErasedNotes        = "notes"
)

// ErasedDisk returns a function that makes the keys for the disk with that number, from 0.
func ErasedDisk(n int) func(what string) string {
	return func(what string) string { return fmt.Sprintf("disk_%d_%s", n, what) }
}

// PhoneHomeReport is the kind of a site agent's report that a system has phoned home. Its fields are evidence, and
// PhoneHomeSecret, the SHA-256 of the secret in lower hex.
const (
	PhoneHomeReport = "phone_home"
	PhoneHomeSecret = "secret_sha256"
)

// InstanceOf is the instance id of the system that an operation writes: the value that distinguishes one installation
// from every other.
func InstanceOf(operationID string) string { return "ingot-" + operationID }
