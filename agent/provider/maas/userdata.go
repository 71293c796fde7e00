package maas

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/internal/userdata"
)

// MaxUserData is the longest user data, in bytes. MAAS hands it over in a form field, base64.
const MaxUserData = 32 << 10

// DefaultUserData lets the agent of an image that has one enrol: it finds its token where it looks for it first.
const DefaultUserData = `#cloud-config
hostname: {{hostname}}
write_files:
  - path: /var/lib/ingot/bootstrap-token
    owner: root:root
    permissions: "0600"
    content: |
      {{bootstrap_bundle}}
runcmd:
  - [systemctl, enable, --now, ingot-agent.service]
`

// Render fills the template, and holds the result to be user data that cloud-init can read. An empty template is the
// default one.
func Render(template, bundle, machine, hostname string) (string, error) {
	if template == "" {
		template = DefaultUserData
	}
	out := strings.NewReplacer("{{bootstrap_bundle}}", bundle, "{{machine_id}}", machine, "{{hostname}}",
		hostname).Replace(template)
	if userdata.TypeOf(out) != userdata.CloudConfig {
		return "", fmt.Errorf("the user data does not begin with #cloud-config")
	}
	if len(out) > MaxUserData {
		return "", fmt.Errorf("the user data has %d bytes, more than %d", len(out), MaxUserData)
	}
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(out), &doc); err != nil {
		// The error quotes lines, and a line may hold the token.
		return "", fmt.Errorf("the user data is no YAML")
	}
	return out, nil
}
