package start

import (
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/internal/failure"
)

func overSSH(s plan.Filled) bool { return kind.Of(s.Kind).Route == kind.OverSSH }

// scriptAsks are the scripts of the plan, and the SSH credentials of a machine that names all that a login needs.
func scriptAsks(f *Facts) (ask []Fact) {
	spec := f.Machine.Spec
	for _, s := range f.steps() {
		if overSSH(s) {
			ask = append(ask, Fact{ScriptFact, s.Step.GetSsh().GetCommand()})
		}
	}
	if len(ask) > 0 && spec.GetSshEndpoint() != "" && spec.GetSshCredentialsRef() != "" && len(spec.GetSshHostKeys()) > 0 {
		ask = append(ask, Fact{SSHCredentialsFact, spec.GetSshCredentialsRef()})
	}
	return ask
}

// scriptsCanRun refuses work that would need a script that does not exist, or a machine that no agent could log in to.
func scriptsCanRun(f *Facts) error {
	for _, s := range f.steps() {
		if !overSSH(s) {
			continue
		}
		if _, ok := f.Scripts[s.Step.GetSsh().GetCommand()]; !ok {
			return ScriptNotFound(s.Step.GetSsh().GetCommand())
		}
		if err := sshReady(f); err != nil {
			return err
		}
	}
	return nil
}

// ScriptNotFound returns the refusal of a script that the catalogue does not have.
func ScriptNotFound(ref string) error {
	return failure.NotFound("SCRIPT_NOT_FOUND", "there is no script %q in the catalogue; see `ingot script list`",
		ref).WithField("script_ref", "unknown")
}

// SSHCredentialsNotFound returns the refusal of SSH credentials that are not stored.
func SSHCredentialsNotFound(ref string) error {
	return failure.NotFound("CREDENTIALS_NOT_FOUND", "there are no SSH credentials %q; see `ingot ssh credentials set`",
		ref).WithField("credentials_ref", "unknown")
}

// ClusterNotFound returns the refusal of a cluster that is not stored.
func ClusterNotFound(ref string) error {
	return failure.NotFound("CLUSTER_NOT_FOUND", "there is no cluster %q; see `ingot cluster set`",
		ref).WithField("cluster_ref", "unknown")
}

func sshReady(f *Facts) error {
	id, spec := f.Machine.MachineID, f.Machine.Spec
	switch {
	case spec.GetSshEndpoint() == "":
		return failure.Precondition("SSH_NOT_CONFIGURED",
			"machine %s names no SSH endpoint; give it with `ingot machine update %s --ssh-endpoint HOST:22`", id, id).
			WithField("machine.spec.ssh_endpoint", "required to run a script")
	case spec.GetSshCredentialsRef() == "":
		return failure.Precondition("SSH_NOT_CONFIGURED",
			"machine %s names no SSH credentials; give them with `ingot machine update %s --ssh-credentials NAME`", id, id).
			WithField("machine.spec.ssh_credentials_ref", "required to run a script")
	case len(spec.GetSshHostKeys()) == 0:
		return failure.Precondition("SSH_HOST_KEY_UNKNOWN",
			"no SSH host key of machine %s is known, and none is trusted on first use; read it at the machine "+
				"(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub) and give it with `ingot machine update %s --ssh-host-key "+
				"SHA256:…`", id, id).
			WithField("machine.spec.ssh_host_keys", "required to run a script")
	case !f.SSHCredentials[spec.GetSshCredentialsRef()]:
		return SSHCredentialsNotFound(spec.GetSshCredentialsRef())
	}
	return nil
}

func clusterAsks(f *Facts) (ask []Fact) {
	for _, s := range f.steps() {
		if ref := kind.ClusterOf(s.Step); ref != "" {
			ask = append(ask, Fact{ClusterFact, ref})
		}
	}
	return ask
}

// clustersExist refuses work that would need a cluster that is not stored.
func clustersExist(f *Facts) error {
	for _, s := range f.steps() {
		if ref := kind.ClusterOf(s.Step); ref != "" && !f.Clusters[ref] {
			return ClusterNotFound(ref)
		}
	}
	return nil
}

// stepsWouldBegin refuses work of which a step would fail at once, by the decision of every step before the first.
func stepsWouldBegin(f *Facts) error {
	answer := f.foresight()
	if answer.Refusal == nil {
		return nil
	}
	return refused(answer.Refusal, f.Machine).WithMeta("step", answer.Step)
}

func bmcAsks(f *Facts) []Fact {
	ref := f.Machine.Spec.GetBmcCredentialsRef()
	if ref == "" || len(f.steps()) == 0 || !f.foresight().ThroughBMC {
		return nil
	}
	return []Fact{{BMCCredentialsFact, ref}}
}

// bmcCredentialed refuses work through a BMC whose credentials are named and not stored: the agent would get none.
func bmcCredentialed(f *Facts) error {
	ref := f.Machine.Spec.GetBmcCredentialsRef()
	if len(bmcAsks(f)) == 0 || f.BMCCredentials[ref] {
		return nil
	}
	return failure.Precondition("CREDENTIALS_NOT_FOUND",
		"the BMC credentials %q that machine %s names are not stored; add them with `ingot bmc credentials set %s`", ref,
		f.Machine.MachineID, ref).WithMeta("machine_id", f.Machine.MachineID)
}
