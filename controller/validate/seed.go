package validate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/ssh"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ignition"
	"github.com/ingot-metal/ingot/internal/userdata"
)

// ParamSeed names the seed of the new system, which is stored sealed. Clients give the seed, and never its name.
const ParamSeed = "seed"

// Bounds of a seed.
const (
	maxSeedText = 64 << 10 // bytes
	maxSeedKeys = 64
	maxSeedKey  = 8 << 10 // bytes
)

// SystemSeed checks the seed of a new system, before anything is written. No message repeats its content.
func SystemSeed(path string, s *baremetalv1.SystemSeed) error {
	var f faults
	if s.GetHostname() != "" {
		f.add(path+".hostname", hostname(s.GetHostname()))
	}
	if n := len(s.GetSshAuthorizedKeys()); n > maxSeedKeys {
		f.add(path+".ssh_authorized_keys", fmt.Sprintf("%d keys; at most %d", n, maxSeedKeys))
	}
	for i, key := range s.GetSshAuthorizedKeys() {
		f.add(fmt.Sprintf("%s.ssh_authorized_keys[%d]", path, i), publicKey(key))
	}
	f.add(path+".user_data", seedData(s.GetUserData()))
	f.add(path+".network_config", networkConfig(s.GetNetworkConfig()))
	return f.err()
}

func publicKey(line string) string {
	if len(line) > maxSeedKey {
		return fmt.Sprintf("at most %d bytes", maxSeedKey)
	}
	_, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	if strings.Contains(line, "PRIVATE KEY") {
		return "a private key; give the public one"
	}
	if err != nil || len(bytes.TrimSpace(rest)) > 0 || strings.ContainsAny(strings.TrimSpace(line), "\r\n") {
		return "not one public key as in authorized_keys"
	}
	return ""
}

func seedData(s string) string {
	switch is, err := ignition.Check(s); {
	case s == "":
		return ""
	case len(s) > maxSeedText:
		return fmt.Sprintf("at most %d bytes", maxSeedText)
	case err != nil:
		return "a configuration of Ignition, and " + err.Error() + "; translate it with butane or ignition-converter"
	case is:
		return ""
	}
	parts := userdata.Parts(s)
	handled := false
	for _, p := range parts {
		// What a part-handler is for is only known on the machine.
		handled = handled || p.Handled()
		if wrong := partFault(p); wrong != "" {
			return wrong
		}
	}
	switch {
	case handled:
		return ""
	case len(parts) == 0 || parts[0].Type != "text/x-not-multipart":
		return "cloud-init would ignore it: none of its MIME parts is of a type that it handles, such as " +
			"text/cloud-config; parts stand between lines of -- and the boundary"
	case mimeHeader.MatchString(s):
		return "cloud-init would ignore it: it reads MIME only where a header MIME-Version stands in the first 4,096 bytes"
	}
	return "cloud-init would ignore it: it begins with none of #cloud-config, #!, #include, #cloud-boothook, " +
		"## template: jinja, or MIME headers; nor is it a configuration of Ignition, which is JSON with an ignition.version"
}

var mimeHeader = regexp.MustCompile(`(?i)^content-type[ \t]*:`)

// partFault describes what keeps cloud-init from taking a part whose type it handles.
func partFault(p userdata.Part) string {
	switch p.Type {
	case userdata.Broken:
		return "cloud-init would fail on all of it: a part is declared compressed, and cannot be decompressed"
	case userdata.CloudConfig:
		return yamlOf(p.Content, yaml.MappingNode, "a mapping")
	case userdata.Archive:
		return yamlOf(p.Content, yaml.SequenceNode, "a list")
	case userdata.JSONPatch:
		return jsonPatch(p.Content)
	}
	return ""
}

// jsonPatch checks that the rest is a list in JSON (RFC 6902), by which cloud-init changes the configuration.
func jsonPatch(s string) string {
	s = strings.TrimPrefix(strings.TrimSpace(s), "#cloud-config-jsonp") // in this case alone: handlers/cloud_config.py
	var patch []struct {
		Op   string
		Path *string
	}
	if json.Unmarshal([]byte(s), &patch) != nil {
		return "not a JSON patch: a list of operations in JSON (RFC 6902)"
	}
	for i, o := range patch {
		if !slices.Contains([]string{"add", "remove", "replace", "move", "copy", "test"}, o.Op) || o.Path == nil ||
			*o.Path != "" && !strings.HasPrefix(*o.Path, "/") {
			return fmt.Sprintf("not a JSON patch: operation %d has no op of RFC 6902, or no path that begins with /", i+1)
		}
	}
	return ""
}

func networkConfig(s string) string {
	if len(s) > maxSeedText {
		return fmt.Sprintf("at most %d bytes", maxSeedText)
	}
	if s == "" {
		return ""
	}
	if problem := yamlOf(s, yaml.MappingNode, "a mapping"); problem != "" {
		return problem
	}
	var c struct {
		Version any `yaml:"version"`
		Network struct {
			Version any `yaml:"version"`
		} `yaml:"network"`
	}
	if yaml.Unmarshal([]byte(s), &c) != nil || c.Version == nil && c.Network.Version == nil {
		return "has no version: 1 or 2"
	}
	v := c.Version
	if v == nil {
		v = c.Network.Version
	}
	if v != 1 && v != 2 {
		return "its version is neither 1 nor 2"
	}
	return ""
}

var yamlLine = regexp.MustCompile(`line \d+`)

// yamlOf reports what keeps cloud-init from reading the text as YAML of a kind; an empty document is one. PyYAML's
// safe_load takes one document, no tags but its own, and no keys that are lists or mappings.
func yamlOf(s string, kind yaml.Kind, what string) string {
	var doc, second yaml.Node
	d := yaml.NewDecoder(strings.NewReader(s))
	err := d.Decode(&doc)
	if err == nil {
		err = d.Decode(&second)
	}
	switch {
	case err == nil:
		return fmt.Sprintf("more than one document: line %d begins another, and cloud-init then takes none", second.Line)
	case !errors.Is(err, io.EOF):
		return "not YAML: the fault is in " + orHere(yamlLine.FindString(err.Error()))
	}
	if len(doc.Content) > 0 && doc.Content[0].Kind != kind && doc.Content[0].Tag != "!!null" {
		return "not " + what + " in YAML"
	}
	return unsafeYAML(&doc, 0)
}

// yamlTime is what PyYAML takes for a time (resolver.py), which it then makes, and fails where there is none.
var yamlTime = regexp.MustCompile(`^(\d{4})-(\d\d?)-(\d\d?)(?:(?:[Tt]|[ \t]+)(\d\d?):(\d\d):(\d\d)(?:\.\d*)?` +
	`(?:[ \t]*(?:Z|[-+]\d\d?(?::\d\d)?))?)?$`)

func noSuchTime(text string) bool {
	m := yamlTime.FindStringSubmatch(text)
	if m == nil || m[4] == "" && len(text) != len("2006-01-02") {
		return false
	}
	var n [6]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // digits, or nothing
	}
	day := time.Date(n[0], time.Month(n[1]), n[2], 0, 0, 0, 0, time.UTC)
	return n[0] == 0 || int(day.Month()) != n[1] || day.Day() != n[2] || n[3] > 23 || n[4] > 59 || n[5] > 59
}

// safeTags are those that PyYAML's SafeConstructor builds, and two of cloud-init's own (cloudinit/safeyaml.py).
var safeTags = []string{"", "!", "!!map", "!!seq", "!!str", "!!int", "!!float", "!!bool", "!!null", "!!binary",
	"!!timestamp", "!!merge", "!!omap", "!!pairs", "!!set", "!!python/unicode"}

// unsafeYAML describes the first part of a document that a safe loader refuses.
func unsafeYAML(n *yaml.Node, depth int) string {
	const mostDepth = 1000
	if !slices.Contains(safeTags, n.ShortTag()) {
		return fmt.Sprintf("line %d has a tag of YAML that cloud-init does not read", n.Line)
	}
	if n.Kind == yaml.AliasNode || depth > mostDepth {
		return ""
	}
	if n.Kind == yaml.ScalarNode && n.Style == 0 && noSuchTime(n.Value) {
		return fmt.Sprintf("line %d has a date that does not exist, which cloud-init does not read without quotes", n.Line)
	}
	for i, part := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && (part.Kind == yaml.MappingNode || part.Kind == yaml.SequenceNode) {
			return fmt.Sprintf("line %d has a list or a mapping for a key, which cloud-init does not read", part.Line)
		}
		if why := unsafeYAML(part, depth+1); why != "" {
			return why
		}
	}
	return ""
}

func orHere(line string) string {
	if line == "" {
		return "its structure"
	}
	return line
}

// PhonesHome refuses user-data that keeps a system without the agent from phoning home, by the parameters of the
// operation. Vendor-data makes cloud-init phone home, and user-data takes precedence over it (cloud-init,
// "Vendor-data"). Data that is fetched or rendered on the machine is not seen here.
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

// preventsPhoneHome returns the part of user-data that does; "" where none is seen.
func preventsPhoneHome(data string) string {
	if is, _ := ignition.Check(data); is {
		if strings.Contains(data, "ingot-phone-home.service") {
			return "it changes ingot-phone-home.service"
		}
		return ""
	}
	for _, p := range userdata.Parts(data) {
		if why := partPreventsPhoneHome(p); why != "" {
			return why
		}
	}
	return ""
}

func partPreventsPhoneHome(p userdata.Part) string {
	switch p.Type {
	case userdata.CloudConfig:
		return configPreventsPhoneHome(p.Content)
	case userdata.Archive:
		return archivePreventsPhoneHome(p.Content)
	case userdata.ShellScript:
		return ""
	}
	if phoneHomeLine.MatchString(p.Content) {
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
			kind, _ := m["type"].(string)
			if kind == "" { // as _explode_archive takes it
				kind = cmp.Or(userdata.TypeOf(content), userdata.CloudConfig)
			}
			if why := partPreventsPhoneHome(userdata.Part{Type: kind, Content: content}); why != "" {
				return why
			}
			continue
		}
		if why := preventsPhoneHome(content); why != "" {
			return why
		}
	}
	return ""
}
