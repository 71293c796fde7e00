package validate_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

func TestUserDataThatPreventsAPhoneHome(t *testing.T) {
	agentless := map[string]string{validate.ParamAgentless: "true"}
	for data, prevents := range map[string]bool{
		"":                                   false,
		"#cloud-config\npackages: [nginx]\n": false,
		"#cloud-config\nphone_home: {url: 'http://elsewhere'}\n":                     true,
		"#cloud-config\nphone_home:\n":                                               true,
		"#cloud-config\nvendor_data: {enabled: false}\n":                             true,
		"#cloud-config\nvendor_data: {enabled: 'off'}\n":                             true,
		"#cloud-config\nvendor_data: {enabled: true}\n":                              false,
		"#cloud-config\nvendor_data: no\nphone_home: {}\n":                           true,
		"#cloud-config\ncloud_final_modules: [scripts-user]\n":                       true,
		"#cloud-config\ncloud_final_modules: []\n":                                   true,
		"#cloud-config\ncloud_final_modules: [scripts-user, [phone-home, always]]\n": false,
		"#cloud-config\nwrite_files: [{content: 'phone_home: x'}]\n":                 false,
		`{"ignition": {"version": "3.0.0"}, "passwd": {}}`:                           false,
		`{"ignition": {"version": "3.0.0"}, "systemd": {"units": [{"name": ` +
			`"ingot-phone-home.service", "mask": true}]}}`: true,
		"#!/bin/sh\ncat >f <<E\nphone_home: x\nE\n":                                               false,
		"#cloud-config-archive\n- '#cloud-config\n\n  phone_home: {}'\n":                          true,
		"#cloud-config-archive\n- {type: text/cloud-config, content: 'phone_home: {}'}\n":         true,
		"#cloud-config-archive\n- {type: text/x-shellscript, content: '#!/bin/sh'}\n":             false,
		"## template: jinja\n#cloud-config\nphone_home:\n  url: http://x/{{ v1.local_hostname }}": true,
		"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/cloud-config\n\n" +
			"phone_home: {}\n--b--\n": true,
	} {
		seed := &baremetalv1.SystemSeed{UserData: data}
		err := validate.PhonesHome("seed", seed, agentless)
		if (err != nil) != prevents {
			t.Errorf("%q: %v", data, err)
		}
		if err != nil && failure.From(err).Reason != "PHONE_HOME_PREVENTED" {
			t.Errorf("%q: %v", data, failure.From(err).Reason)
		}
		if err := validate.PhonesHome("seed", seed, nil); err != nil {
			t.Errorf("with an agent, %q: %v", data, err)
		}
	}
}
