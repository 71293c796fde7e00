package validate

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
)

// PhonesHome refuses user-data that keeps a system without the agent from phoning home, by the parameters of the
// operation. cloud-init is told to by vendor-data, which user-data goes before (cloud-init, "Vendor-data"). What is
// fetched or rendered on the machine is not seen here.
func PhonesHome(path string, s *baremetalv1.SystemSeed, params map[string]string) error {
	if params[ParamAgentless] != "true" {
		return nil
	}
	why := preventsPhoneHome(s.GetUserData())
	if why == "" {
		return nil
	}
	field := path + ".user_data"
	return failure.Invalid("PHONE_HOME_PREVENTED",
		"%s: %s; a system without the agent proves itself by phoning home to its site: take that out of the user-data, or "+
			"install with the agent", field, why).WithField(field, why)
}

// phoneHomeLine finds the module's configuration in texts that are not read as YAML here, such as MIME parts.
var phoneHomeLine = regexp.MustCompile(`(?m)^["']?phone_home["']?[ \t]*:`)

// preventsPhoneHome says what in user-data does; "" where nothing is seen to.
func preventsPhoneHome(data string) string {
	first, _, _ := strings.Cut(data, "\n")
	switch strings.TrimRight(first, "\r ") {
	case "#cloud-config":
		return configPreventsPhoneHome(data)
	case "#cloud-config-archive":
		return archivePreventsPhoneHome(data)
	}
	if !strings.HasPrefix(data, "#!") && phoneHomeLine.MatchString(data) {
		return "it configures phone_home itself"
	}
	return ""
}

func configPreventsPhoneHome(data string) string {
	var c struct {
		PhoneHome  yaml.Node `yaml:"phone_home"`
		VendorData struct {
			Enabled any `yaml:"enabled"`
		} `yaml:"vendor_data"`
		FinalModules []any `yaml:"cloud_final_modules"`
	}
	if yaml.Unmarshal([]byte(data), &c) != nil {
		// A vendor_data of another kind than a mapping is ignored by cloud-init; a phone_home in it is not.
		if phoneHomeLine.MatchString(data) {
			return "it configures phone_home itself"
		}
		return ""
	}
	switch {
	case !c.PhoneHome.IsZero():
		return "it configures phone_home itself"
	case off(c.VendorData.Enabled):
		return "it sets vendor_data.enabled to false"
	case c.FinalModules != nil && !slices.ContainsFunc(c.FinalModules, runsPhoneHome):
		return "its cloud_final_modules lack phone_home"
	}
	return ""
}

// off reports whether cloud-init takes the value as false (cloudinit/util.py, is_false).
func off(v any) bool {
	switch v := v.(type) {
	case bool:
		return !v
	case int:
		return v == 0
	case string:
		return slices.Contains([]string{"off", "0", "no", "false"}, strings.ToLower(strings.TrimSpace(v)))
	}
	return false
}

// runsPhoneHome reports whether an entry of cloud_final_modules is the module: its name, or a list that begins with it.
func runsPhoneHome(entry any) bool {
	if list, ok := entry.([]any); ok && len(list) > 0 {
		entry = list[0]
	}
	name, _ := entry.(string)
	return strings.ReplaceAll(name, "-", "_") == "phone_home"
}

func archivePreventsPhoneHome(data string) string {
	var parts []any
	if yaml.Unmarshal([]byte(data), &parts) != nil {
		return ""
	}
	for _, p := range parts {
		content, _ := p.(string)
		if m, ok := p.(map[string]any); ok {
			content, _ = m["content"].(string)
			if m["type"] == "text/cloud-config" && !strings.HasPrefix(content, "#cloud-config") {
				content = "#cloud-config\n" + content
			}
		}
		if why := preventsPhoneHome(content); why != "" {
			return why
		}
	}
	return ""
}
