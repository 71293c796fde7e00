package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const goodURL = "database: {url: 'postgres://ingot@/ingot'}\n"

func environment(kv ...string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		for i := 0; i < len(kv); i += 2 {
			if kv[i] == key {
				return kv[i+1], true
			}
		}
		return "", false
	}
}

func TestDefaultNeedsNothingButADatabase(t *testing.T) {
	problems := Default().Validate()
	if len(problems) != 1 || problems[0].Key != "database.url" {
		t.Errorf("problems: %v", problems)
	}
	c := Default()
	c.Dev = true
	if problems := c.Validate(); len(problems) != 0 {
		t.Errorf("with --dev: %v", problems)
	}
}

func TestSampleIsTheDefault(t *testing.T) {
	c, problems := parse(Sample, environment(), nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := Default()
	want.Database.URL, want.TLS.Names = c.Database.URL, c.TLS.Names // marked as examples
	want.Advertise = Advertise{Fleet: []string{}, Enrolment: []string{}}
	want.Steps = map[string]Step{}
	want.Images.AllowNetworks = []string{}
	want.Images.Registries = Registries{Hosts: []string{}, PlainHTTP: []string{}}
	want.SignOn.Audiences, want.SignOn.Scopes = []string{}, []string{}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("sample is\n%+v\ndefault is\n%+v", c, want)
	}
}

// TestSampleNamesEveryKey: a key that the sample lacks would be unknown to its readers.
func TestSampleNamesEveryKey(t *testing.T) {
	lines := keyLines(Sample)
	for _, key := range yamlKeys("", reflect.TypeFor[Config]()) {
		if lines[key] == 0 {
			t.Errorf("%s is not in the sample", key)
		}
	}
}

func yamlKeys(prefix string, typ reflect.Type) (out []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		tag := f.Tag.Get("yaml")
		if tag == "" || tag == "-" {
			continue
		}
		out = append(out, prefix+tag)
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[Duration]() {
			out = append(out, yamlKeys(prefix+tag+".", f.Type)...)
		}
	}
	return out
}

func TestFiveMistakesFiveLines(t *testing.T) {
	file := `listen:
  http: nonsense
  fleet: ":50051"
databse: {}
workers: many
agents:
  cert_lifetime: 7 days
` + goodURL
	_, problems := parse([]byte(file), environment(), nil)
	want := []string{
		`line 2: listen.http: "nonsense" is not host:port`,
		`line 3: listen.fleet: :50051 is the address of listen.frontpage already`,
		`line 4: unknown key "databse"`,
		`line 5: "many" is not a whole number`,
		`line 7: "7 days" is not a duration such as 10s, 1h30m or 7d`,
	}
	if got := strings.Split(problems.Error(), "\n"); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", problems, strings.Join(want, "\n"))
	}
}

func TestMistakes(t *testing.T) {
	cases := map[string]string{
		"log: {level: loud}":                              `line 1: log.level: "loud" is none of debug, info, warn, error`,
		"log: {format: xml}":                              `line 1: log.format: "xml" is neither text nor json`,
		"data_dir: var":                                   `line 1: data_dir: "var" is not an absolute path`,
		"tls: {cert_file: /a}":                            `line 1: tls: cert_file and key_file go together`,
		"tls: {names: []}":                                `line 1: tls.names: names at least one`,
		"tls:\n  names:\n  - ok\n  - not_ok":              `line 4: tls.names[1]: "not_ok" is neither a host name nor an IP address`,
		"tls: {names: yes}":                               `line 1: "yes" is not a list`,
		"lease: 1s":                                       `line 1: lease: 1s is not from 3s to 5m0s`,
		"lease: 15":                                       `line 1: "15" is not a duration`,
		"workers: 0":                                      `line 1: workers: 0 is not from 1 to 10000`,
		"reflection: maybe":                               `line 1: "maybe" is not true or false`,
		"listen: []":                                      `line 1: a list is not a mapping`,
		"advertise: {fleet: [\"a:0\"]}":                   `line 1: advertise.fleet[0]: "a:0" has no usable port number`,
		"listen: {http: \"a:99999\"}":                     `line 1: listen.http: "a:99999" has no usable port number`,
		"steps:\n  rebot: {timeout: 1m}":                  `line 2: steps.rebot: unknown step kind; there are `,
		"steps:\n  reboot:\n    retries: -1":              `line 3: steps.reboot.retries: -1 is not from 0 to 100`,
		"steps:\n  reboot:\n    timeout: 25h":             `line 3: steps.reboot.timeout: 25h0m0s is not from 1s to 24h0m0s`,
		"steps: {reboot: {time: 1m}}":                     `line 1: unknown key "time"`,
		"max_message_bytes: 10":                           `line 1: max_message_bytes: 10 is not from`,
		"lease: 10s\nlease: 11s":                          `line 2: mapping key "lease" already defined at line 1`,
		"a: [":                                            `line 1`,
		"lease: 10s\n---\nlease: 11s":                     `there is more than one YAML document`,
		"agents: {heartbeat_interval: 1ms}":               `line 1: agents.heartbeat_interval: 1ms is not from 1s to 1h0m0s`,
		"agents: {missed_heartbeats: 0}":                  `line 1: agents.missed_heartbeats: 0 is not from 1 to 100`,
		"agents: {reenroll_grace: -1h}":                   `line 1: agents.reenroll_grace: -1h0m0s is not from`,
		"images: {bucket: {endpoint: \"https://a\"}}":     `line 1: images.bucket.name: is required beside endpoint`,
		"images: {bucket: {ca_file: ca}}":                 `line 1: images.bucket.ca_file: "ca" is not an absolute path`,
		"images: {registries: {auth_file: a}}":            `line 1: images.registries.auth_file: "a" is not an absolute path`,
		"images: {registries: {hosts: [\"https://a\"]}}":  `line 1: images.registries.hosts[0]: "https://a" is not a host such as registry.example.org:5000`,
		"images: {registries: {plain_http: [\"A:1\"]}}":   `line 1: images.registries.plain_http[0]: "A:1" is not a host such as registry.example.org:5000`,
		"images_dir: images":                              `line 1: images_dir: "images" is not an absolute path`,
		"secrets_key_file: k":                             `line 1: secrets_key_file: "k" is not an absolute path`,
		"keys_dir: keys":                                  `line 1: keys_dir: "keys" is not an absolute path`,
		"tokens_file: ''":                                 `line 1: tokens_file: "" is not an absolute path`,
		"database: {pool_size: 1, url: 'postgres://x/y'}": `line 1: database.pool_size: 1 is not from 4 to 1000`,
	}
	for file, want := range cases {
		env := environment("INGOT_DATABASE_URL", "postgres://ingot@/ingot")
		_, problems := parse([]byte(file), env, nil)
		if len(problems) != 1 || !strings.HasPrefix(problems.Error(), want) {
			t.Errorf("%q gave\n%v\nwant\n%s", file, problems, want)
		}
	}
}

// TestBucketMistakes: each replaces one value of a bucket that is well.
func TestBucketMistakes(t *testing.T) {
	well := map[string]string{"name": "images", "endpoint": "https://s3.example.org:9000", "prefix": "ingot/a/",
		"region": "eu-1", "credentials_file": "/etc/ingot/s3"}
	for _, c := range []struct{ key, value, want string }{
		{"name", "images", ""}, {"prefix", "", ""}, {"endpoint", "http://127.0.0.1:9000", ""},
		{"name", "Images", "not the name of a bucket"}, {"name", "a", "not the name of a bucket"},
		{"endpoint", "http://s3.example.org", "not a URL of https"}, {"endpoint", "s3.example.org", "not a URL of a host alone"},
		{"endpoint", "https://s3.example.org/images", "not a URL of a host alone"},
		{"endpoint", "https://key:secret@s3.example.org", "not a URL of a host alone"},
		{"prefix", "ingot", "end with a slash"}, {"prefix", "../", "end with a slash"}, {"prefix", "/", "end with a slash"},
		{"region", "EU 1", "not the name of a region"}, {"credentials_file", "", "is required beside name"},
		{"credentials_file", "s3", "not an absolute path"},
	} {
		file := goodURL + "images:\n  bucket:\n"
		for key, value := range well {
			if key == c.key {
				value = c.value
			}
			file += fmt.Sprintf("    %s: %q\n", key, value)
		}
		_, problems := parse([]byte(file), environment(), nil)
		if c.want == "" && len(problems) > 0 ||
			c.want != "" && (len(problems) != 1 || !strings.Contains(problems.Error(), c.want) ||
				problems[0].Key != "images.bucket."+c.key) {
			t.Errorf("%s %q gave %v, want %q", c.key, c.value, problems, c.want)
		}
	}
}

func TestDatabasePasswordIsNotRepeated(t *testing.T) {
	_, problems := parse([]byte("database: {url: 'postgres://u:hunter2@h:port/x'}"), environment(), nil)
	if len(problems) != 1 || strings.Contains(problems.Error(), "hunter2") {
		t.Errorf("%v", problems)
	}
}

func TestEnvironmentWins(t *testing.T) {
	env := environment("INGOT_DATABASE_URL", "postgres://env/x", "INGOT_REFLECTION", "true", "INGOT_LOG_LEVEL", "debug",
		"INGOT_SECRET_KEY_FILE", "/run/key")
	c, problems := parse([]byte(goodURL+"reflection: false\n"), env, nil)
	if c.SecretKeyPath() != "/run/key" {
		t.Errorf("key file %s", c.SecretKeyPath())
	}
	if len(problems) > 0 || c.Database.URL != "postgres://env/x" || !c.Reflection || c.Log.Level != "debug" {
		t.Errorf("%+v, %v", c, problems)
	}
	_, problems = parse([]byte(goodURL), environment("INGOT_REFLECTION", "perhaps"), nil)
	if len(problems) != 1 || problems[0].Key != "INGOT_REFLECTION" {
		t.Errorf("%v", problems)
	}
}

func TestFlagsComeBeforeValidation(t *testing.T) {
	c, problems := parse(nil, environment(), func(c *Config) { c.Dev = true })
	if len(problems) > 0 || !c.Dev {
		t.Errorf("%v", problems)
	}
	_, problems = parse([]byte(goodURL), environment(), func(c *Config) { c.Dev = true })
	if len(problems) != 1 || problems[0].Key != "database.url" {
		t.Errorf("--dev with a URL: %v", problems)
	}
}

func TestDurations(t *testing.T) {
	for s, want := range map[string]time.Duration{"7d": 7 * day, "90s": 90 * time.Second, "1h30m": 90 * time.Minute,
		"0s": 0} {
		if got, err := parseDuration(s); err != nil || got.Duration != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0", "15", "d", "1.5d", "-1d", "99999999d", "1w"} {
		if got, err := parseDuration(s); err == nil {
			t.Errorf("%q passed as %v", s, got)
		}
	}
}

func TestDerivedValues(t *testing.T) {
	c, problems := parse([]byte(goodURL+`
tls: {names: [ctl.example.org, 10.0.0.1, "::1"]}
steps: {reboot: {retries: 7}}
`), environment(), nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if got := c.EnrolmentAddresses(); !reflect.DeepEqual(got, []string{"ctl.example.org:50053"}) {
		t.Errorf("enrolment %v", got)
	}
	if c.ImagesPath() != "/var/lib/ingot-controller/images" ||
		c.SecretKeyPath() != "/var/lib/ingot-controller/secrets/bmc.key" {
		t.Errorf("images %s, key %s", c.ImagesPath(), c.SecretKeyPath())
	}
	if c.KeysDir = "/run/keys"; c.SecretKeyPath() != "/run/keys/bmc.key" {
		t.Errorf("key %s", c.SecretKeyPath())
	}
	c.ImagesDir, c.SecretsKeyFile = "/srv/images", "/run/key"
	if c.ImagesPath() != "/srv/images" || c.SecretKeyPath() != "/run/key" {
		t.Errorf("images %s, key %s", c.ImagesPath(), c.SecretKeyPath())
	}
	c.Advertise.Fleet = []string{"a:1", "b:2"}
	if got := c.FleetAddresses(); !reflect.DeepEqual(got, []string{"a:1", "b:2"}) {
		t.Errorf("fleet %v", got)
	}
	if dns, ips := c.ServerNames(); len(dns) != 1 || len(ips) != 2 {
		t.Errorf("%v %v", dns, ips)
	}
	built, got := Default().StepDefaults()["reboot"], c.StepDefaults()["reboot"]
	if got.Retries != 7 || got.Timeout != built.Timeout {
		t.Errorf("reboot %+v, built in %+v", got, built)
	}
}

func TestDefaultNames(t *testing.T) {
	name := func(s string, err error) func() (string, error) { return func() (string, error) { return s, err } }
	if got := defaultNames(name("ctl", nil)); got[0] != "ctl" || len(got) != 4 {
		t.Errorf("%v", got)
	}
	for _, f := range []func() (string, error){name("", errors.New("x")), name("bad_name", nil), name("localhost", nil)} {
		if got := defaultNames(f); len(got) != 3 {
			t.Errorf("%v", got)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("wrong: 1\n"+goodURL), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path, nil)
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != 1 {
		t.Errorf("%v", err)
	}
	if _, err := Load(path+".missing", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := Load("", func(c *Config) { c.Dev = true }); err != nil && os.Getenv("INGOT_DATABASE_URL") == "" {
		t.Errorf("no file: %v", err)
	}
}

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	c := Default()
	c.DataDir, c.TokensFile = filepath.Join(dir, "f"), filepath.Join(dir, "tokens")
	c.TLS.CertFile, c.TLS.KeyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	if err := os.WriteFile(c.DataDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.ImagesDir, c.SecretsKeyFile = c.DataDir, filepath.Join(dir, "bmc.key")
	if got := c.CheckFiles(); len(got) != 5 {
		t.Errorf("%v", got)
	}
}

// The configuration that deploy/ has for several controllers is one.
func TestDeployedConfigurationsAreValid(t *testing.T) {
	for _, file := range []string{"controller.yaml", "high-availability/controller.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "deploy", file))
		if err != nil {
			t.Fatal(err)
		}
		c, problems := parse(text, environment(), nil)
		if problems = append(problems, c.Validate()...); len(problems) > 0 {
			t.Errorf("%s: %v", file, problems)
		}
	}
}
