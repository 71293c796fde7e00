package cli

import (
	"strings"
	"testing"
)

func TestMAASCommands(t *testing.T) {
	golden(t, "maas", fleet,
		"maas list",
		"maas list -o json",
		"maas list -o name",
		"maas set default --endpoint http://maas.example:5240/MAAS --key-file testdata/maas.key",
		"maas set lab --endpoint https://lab.example/MAAS --key-file testdata/maas.key --user-data-file testdata/fix.sh "+
			"--retain-machines -o yaml",
		"maas set default --endpoint http://maas.example:5240/MAAS --key-file testdata/fix.sh",
		"maas set default --endpoint http://maas.example:5240/MAAS --key-file testdata/none",
		"maas set default --key-file testdata/maas.key",
		"maas delete lab",
		"maas delete default",
		"maas delete nowhere",
		"__complete maas delete ''",
	)
	got := fleet().run(t, "maas", "set", "default", "--endpoint", "http://maas.example:5240/MAAS", "--key-file",
		"testdata/maas.key")
	if strings.Contains(got.out+got.err, "secret") {
		t.Errorf("the key is shown: %+v", got)
	}
}
