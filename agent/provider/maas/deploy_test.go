package maas

import (
	"testing"

	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// begun is what MAAS logs of any deployment, newest first: the beginning of everything, in the words of cloud-init and
// curtin (canonical/maas, src/metadataserver/api_twisted.py, _processMessage).
var begun = []Event{
	{ID: 8, Type: "Node installation", Description: "'curtin' configuring storage"},
	{ID: 7, Type: "Node installation", Description: "'curtin' curtin command install"},
	{ID: 6, Type: "Node installation",
		Description: "'cloudinit' running config-scripts_user with frequency once-per-instance"},
	{ID: 5, Type: "Node installation", Description: "'cloudinit' searching for network data from DataSourceMAAS"},
	{ID: 4, Type: "Node installation", Description: "'cloudinit' searching for network datasources"},
	{ID: 3, Type: "Node changed status", Description: "From 'Allocated' to 'Deploying'"},
	{ID: 2, Type: "Marking node failed", Description: "no datasource found, the last time", Failure: true},
}

func TestClassesOfFailedDeployments(t *testing.T) {
	failure := func(text string) []Event {
		marked := Event{ID: 11, Type: "Marking node failed",
			Description: "Installation failed (refer to the installation log for more information).", Failure: true}
		cloud := Event{ID: 10, Type: "Node installation failure",
			Description: "'cloudinit' running config-scripts_user with frequency once-per-instance", Failure: true}
		return append([]Event{marked, cloud, {ID: 9, Type: "Node installation failure", Description: text, Failure: true}},
			begun...)
	}
	timeout := Event{ID: 9, Type: "Marking node failed",
		Description: "Node operation 'Deploying' timed out after 40 minutes.", Failure: true}
	for name, c := range map[string]struct {
		events []Event
		want   string
	}{
		"no disk":                      {failure("'curtin' boot disk not found"), classDisk},
		"a disk that breaks":           {failure("'curtin' configuring storage: nvme0n1: I/O error"), classDisk},
		"curtin":                       {failure("'curtin' exit status 3"), classOther},
		"no data source":               {failure("'cloudinit' no datasource found"), classDatasource},
		"silent until it timed out":    {append([]Event{timeout}, begun[5:]...), classDatasource},
		"curtin until it timed out":    {append([]Event{timeout}, begun...), classOther},
		"timed out, and a cut-off log": {[]Event{timeout}, classOther},
	} {
		if got := classOf(Seen{M: &Machine{Status: ms.FailedDeployment}, Events: c.events}); got != c.want {
			t.Errorf("%s is %s, want %s", name, got, c.want)
		}
	}
}
