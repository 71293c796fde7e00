package maas

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/ingot-metal/ingot/internal/evidence"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// notes are what a deployment of this order carries in MAAS.
func (o Order) notes() map[string]string {
	notes := map[string]string{noteMachine: o.Machine, noteOperation: o.Operation}
	if o.Action == "recover_deploy" {
		notes[noteRecovery] = o.Operation
	}
	return notes
}

// ours reports whether the machine's annotations are of this very operation.
func (o Order) ours(m *Machine) bool {
	return m.Annotations[noteOperation] == o.Operation && m.Annotations[noteMachine] == o.Machine
}

// decideAllocate reserves the machine in MAAS, with the operation as the comment.
func decideAllocate(o Order, s Seen) Next {
	switch m := s.M; {
	case m.is(ms.Ready) && s.P.asked(Allocate):
		return wait("MAAS to allocate the machine")
	case m.is(ms.Ready):
		return do(Allocate, map[string]string{"comment": "ingot " + o.Operation})
	case !m.is(ms.Allocated):
		return conflict(s, "a machine is allocated while it is Ready")
	case foreign(o.Machine, m, s.User) != "":
		return conflict(s, foreign(o.Machine, m, s.User))
	case o.ours(m):
		return done(s, map[string]string{"maas_allocated": "true"})
	case m.Annotations[noteMachine] != o.Machine && !s.P.asked(Allocate):
		return conflict(s, "it is allocated, and no annotation there says that it is ours")
	}
	return do(Annotate, o.notes())
}

// decideDeploy is done when MAAS has taken the request: deploying, or beyond.
func decideDeploy(o Order, s Seen) Next {
	m := s.M
	if s.P.asked(Deploy) {
		return afterDeploy(o, s)
	}
	switch {
	case m.is(ms.Deploying, ms.Deployed) && o.ours(m):
		return taken(s)
	case m.is(ms.Ready, ms.Allocated):
		if n := decideAllocate(o, s); !n.Done {
			return n
		}
		return do(Deploy, o.deployment())
	case m.is(ms.FailedDeployment) && m.Annotations[noteMachine] == o.Machine && !s.P.asked(Release):
		// Nothing is lost: it was being overwritten.
		return do(Release, map[string]string{"comment": "ingot " + o.Operation})
	case m.is(ms.Releasing) && s.P.asked(Release):
		return wait("MAAS to release the machine")
	case m.is(ms.New):
		return conflict(s, "MAAS has no commissioning of it that has passed; commission it first")
	}
	return conflict(s, "it is deployed from Ready, or from Allocated by us")
}

func afterDeploy(o Order, s Seen) Next {
	switch m := s.M; {
	case m.is(ms.Deploying, ms.Deployed, ms.FailedDeployment) && o.ours(m):
		return taken(s)
	case m.is(ms.Allocated) && o.ours(m) && reverted(s):
		return putBack(s)
	case m.is(ms.Allocated) && o.ours(m):
		return wait("MAAS to begin to deploy the machine")
	}
	return conflict(s, "another owner has taken it since it was to be deployed")
}

func taken(s Seen) Next { return done(s, map[string]string{evidence.Redeployed: "true"}) }

// deployment returns the parameters of the request but for the user data, which its caller adds.
func (o Order) deployment() map[string]string {
	p := pick(o.Params, "distro_series", "hwe_kernel")
	if series := o.Params["image"]; p["distro_series"] == "" && series != "" {
		p["distro_series"] = series
	}
	p["enable_hw_sync"] = strconv.FormatBool(o.Params["hardware_sync"] != "false")
	p["comment"] = "ingot " + o.Operation
	return p
}

// decideDeployed waits for the end of a deployment. With settle a failed one is an end too, to be classified.
func decideDeployed(o Order, s Seen) Next {
	switch m := s.M; {
	case m.is(ms.Deployed):
		return deployed(s)
	case m.is(ms.FailedDeployment) && o.on("settle"):
		return done(s, map[string]string{"maas_deploy_outcome": "failed"})
	case m.is(ms.FailedDeployment):
		return failedThere(s)
	case m.is(ms.Deploying):
		return wait("MAAS to deploy the machine")
	}
	return conflict(s, "the deployment was aborted, or the machine was released")
}

func deployed(s Seen) Next {
	what := s.M.Deployed()
	if what == "" {
		what = "unnamed"
	}
	return done(s, map[string]string{evidence.Deployed: what})
}

// Classes of failed deployments.
const (
	classNone       = "none"
	classDatasource = "datasource"
	classDisk       = "boot_disk"
	classOther      = "other"
)

var (
	datasource = regexp.MustCompile(`(?i)data ?source|no \S+ data found|instance metadata|user[ -]?data`)
	bootDisk   = regexp.MustCompile(
		`(?i)no (such )?(boot )?disk|boot disk|disk not found|no space left|block device|i/o error`)
	timedOut = regexp.MustCompile(`(?i)timed out after`)
	// origin is what MAAS puts before a line of the machine's: who said it, such as 'cloudinit'.
	origin = regexp.MustCompile(`^'[^']*' `)
)

// deploying returns MAAS's log of the deployment, newest first. whole reports whether it reaches back to the beginning.
func deploying(s Seen) (events []Event, whole bool) {
	for i, e := range s.Events {
		if strings.Contains(e.Description, "to 'Deploying'") {
			return s.Events[:i], true
		}
	}
	return s.Events, false
}

// classOf returns the class of a failed deployment, by MAAS's log. MAAS logs the beginning of all steps of cloud-init,
// among them its search for a data source: only errors in the log are signs of a failure. Once curtin has begun, the
// data source was there, and later lines of cloud-init are about curtin's end.
func classOf(s Seen) string {
	if s.M.is(ms.Deployed) {
		return classNone
	}
	events, whole := deploying(s)
	text, curtin := []string{s.M.StatusMessage}, false
	for _, e := range events {
		curtin = curtin || strings.HasPrefix(e.Description, "'curtin' ")
		if e.Failure {
			text = append(text, origin.ReplaceAllString(e.Description, ""))
		}
	}
	switch all := strings.Join(text, "\n"); {
	case bootDisk.MatchString(all):
		return classDisk
	case datasource.MatchString(all), timedOut.MatchString(all) && whole && !curtin:
		return classDatasource
	}
	return classOther
}

// causeOf returns the cause of the last failure in MAAS's log, or "".
func causeOf(s Seen) string {
	events, _ := deploying(s)
	for _, e := range events {
		if e.Failure && e.Type != "Marking node failed" && e.Description != "" {
			return e.Description
		}
	}
	return ""
}

func decideClass(_ Order, s Seen) Next {
	if !s.M.is(ms.Deployed, ms.FailedDeployment) {
		return conflict(s, "the deployment has neither succeeded nor failed")
	}
	switch class := classOf(s); class {
	case classDisk:
		return fail("DISK_RULE_NO_UNIQUE_MATCH", false, "the deployment found no disk to write: %s %s", s.M.StatusMessage,
			causeOf(s))
	case classOther:
		return failedThere(s)
	default:
		return done(s, map[string]string{"maas_deploy_failure": class})
	}
}

// decideRecover releases a machine whose deployment failed for want of its data source, and deploys it again, once.
func decideRecover(o Order, s Seen) Next {
	m := s.M
	switch {
	case m.is(ms.Deployed) && s.P.asked(Deploy) && o.ours(m):
		n := deployed(s)
		n.Evidence[evidence.Redeployed] = "true"
		return n
	case m.is(ms.Deployed) && !s.P.asked(Deploy):
		return deployed(s)
	case m.is(ms.FailedDeployment) && s.P.asked(Deploy):
		return failedThere(s)
	case m.is(ms.FailedDeployment) && m.Annotations[noteRecovery] == o.Operation: // by a command before this one
		return fail("MAAS_FAILED", false, "the deployment was made once more, and has failed again: %s", s.M.StatusMessage)
	case m.is(ms.FailedDeployment) && s.P.asked(Release):
		return wait("MAAS to release the machine")
	case m.is(ms.FailedDeployment) && classOf(s) != classDatasource:
		return decideClass(o, s)
	case m.is(ms.FailedDeployment):
		return do(Release, map[string]string{"comment": "ingot " + o.Operation})
	case m.is(ms.Deploying):
		return wait("MAAS to deploy the machine")
	}
	if n := decideDeploy(o, s); !n.Done {
		return n
	}
	return wait("MAAS to deploy the machine")
}

func decideSync(_ Order, s Seen) Next {
	switch m := s.M; {
	case !m.is(ms.Deployed):
		return conflict(s, "Deployed was expected")
	case m.HWSync:
		return done(s, map[string]string{"maas_hardware_sync": "on"})
	case m.OSystem != "ubuntu":
		return done(s, map[string]string{"maas_hardware_sync": "not on " + m.OSystem})
	}
	return fail("MAAS_STATUS_CONFLICT", false, "hardware sync is off, and only another deployment can switch it on")
}

func decideSyncHealthy(_ Order, s Seen) Next {
	switch m := s.M; {
	case !m.is(ms.Deployed):
		return conflict(s, "Deployed was expected")
	case !m.HWSync:
		return done(s, map[string]string{"maas_hardware_sync": "off"})
	case !m.LastSync.IsZero() && s.Now.Sub(m.LastSync) <= 2*m.SyncEvery+syncGrace:
		return done(s, map[string]string{"maas_last_sync": m.LastSync.UTC().Format("2006-01-02T15:04:05Z")})
	}
	return wait("the deployed system to tell MAAS of its hardware")
}
