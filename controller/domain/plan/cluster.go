package plan

import (
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func joinSteps() (join, verify *baremetalv1.Step) {
	join = &baremetalv1.Step{Name: "join-cluster", TimeoutSeconds: 600, MaxRetries: 1,
		Kind: &baremetalv1.Step_Join{Join: &baremetalv1.KubeadmJoin{}}}
	verify = &baremetalv1.Step{Name: "verify", TimeoutSeconds: 300,
		Kind: &baremetalv1.Step_Verify{Verify: &baremetalv1.VerifyInCluster{}}}
	return join, verify
}

func drainStep() *baremetalv1.Step {
	return &baremetalv1.Step{Name: "drain", Kind: &baremetalv1.Step_Drain{Drain: &baremetalv1.Drain{}}}
}

// leaveStep takes the Node away too. Data on the machine's own disk has no future in these plans.
func leaveStep() *baremetalv1.Step {
	return &baremetalv1.Step{Name: "drain",
		Kind: &baremetalv1.Step_Drain{Drain: &baremetalv1.Drain{DeleteLocalData: true, RemoveNode: true}}}
}

func uncordonStep() *baremetalv1.Step {
	return &baremetalv1.Step{Name: "uncordon", Kind: &baremetalv1.Step_Uncordon{Uncordon: &baremetalv1.Uncordon{}}}
}
