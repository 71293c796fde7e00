package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/internal/pki"
)

const (
	configFile = "etc/ingot/controller.yaml"
	// templateFile is the configuration as the package brings it.
	templateFile = "usr/share/ingot/controller.yaml"
	service      = "ingot-controller"
	// startTime is how long the controller may take to serve, migrations included.
	startTime = 5 * time.Minute
	// reloadTime is how long a new token may take to be known.
	reloadTime = 15 * time.Second
)

// controllerConfig is the part of the controller's configuration that setup needs.
type controllerConfig struct {
	DataDir    string `yaml:"data_dir"`
	TokensFile string `yaml:"tokens_file"`
	Database   struct {
		URL string `yaml:"url"`
	} `yaml:"database"`
	TLS struct {
		Names []string `yaml:"names"`
	} `yaml:"tls"`
	Listen struct {
		Frontpage string `yaml:"frontpage"`
		HTTP      string `yaml:"http"`
	} `yaml:"listen"`
}

// readConfig reads the configuration, or that of the package where there is none.
func (o *install) readConfig() (controllerConfig, string, error) {
	c := controllerConfig{}
	c.DataDir, c.TokensFile = "/var/lib/ingot-controller", "/etc/ingot/tokens"
	c.Listen.Frontpage, c.Listen.HTTP = ":50051", "127.0.0.1:8080"
	file := configFile
	if !o.files.exists(file) {
		file = templateFile
	}
	raw, err := os.ReadFile(o.files.path(file))
	if err != nil {
		return c, "", fmt.Errorf("read configuration: %w", err)
	}
	if err := yaml.Unmarshal(raw, &c); err != nil {
		return c, "", fmt.Errorf("read /%s: %w", file, err)
	}
	return c, string(raw), nil
}

func (o *install) checkConfiguration(context.Context) (string, []change, error) {
	text, err := o.wantedConfig()
	if err != nil {
		return "", nil, err
	}
	have, err := os.ReadFile(o.files.path(configFile))
	if err == nil && string(have) == text {
		return "/" + configFile, nil, nil
	}
	return "", []change{{"write /" + configFile, func(ctx context.Context) error {
		if err := o.files.write(configFile, text, 0o640, role); err != nil {
			return err
		}
		_, err := o.run(ctx, program{name: "ingot-controller", args: []string{"config", "check", "--config",
			o.files.path(configFile)}, user: role})
		return err
	}}}, nil
}

var databaseLine = regexp.MustCompile(`(?m)^  url: .*$`)

// wantedConfig is the configuration with what was asked for. What an operator has written stays as it is.
func (o *install) wantedConfig() (string, error) {
	c, text, err := o.readConfig()
	if err != nil {
		return "", err
	}
	made := o.files.exists(configFile)
	if o.databaseURL != "" && o.databaseURL != c.Database.URL {
		if made && c.Database.URL != "" {
			return "", errors.New("/" + configFile + " names another database: change database.url there")
		}
		text = databaseLine.ReplaceAllLiteralString(text, "  url: "+quote(o.databaseURL))
	}
	switch {
	case len(c.TLS.Names) == 0:
		names := []string{o.name, "localhost", "127.0.0.1", "::1"}
		for i, n := range names {
			names[i] = quote(n)
		}
		text = strings.TrimRight(text, "\n") + "\n\n# What clients and agents dial; the first is what agents are told.\n" +
			"tls:\n  names: [" + strings.Join(names, ", ") + "]\n"
	case !slices.Contains(c.TLS.Names, o.name):
		return "", fmt.Errorf("/%s has other names, %s: add %s to tls.names there, then systemctl restart %s", configFile,
			strings.Join(c.TLS.Names, " "), o.name, service)
	}
	return text, nil
}

// quote writes a string as YAML with double quotes, which is JSON.
func quote(s string) string { return fmt.Sprintf("%q", s) }

// checkToken sees to a first token: the controller does not start without one.
func (o *install) checkToken(ctx context.Context) (string, []change, error) {
	c, _, err := o.readConfig()
	if err != nil {
		return "", nil, err
	}
	if !o.files.exists(c.TokensFile) {
		return "", []change{{"make an admin's token for root", func(ctx context.Context) error {
			return o.makeToken(ctx, "root")
		}}}, nil
	}
	if _, err := o.run(ctx, program{name: "test", args: []string{"-r", o.files.path(c.TokensFile)},
		user: role}); err != nil {
		return "", []change{{"let the controller read " + c.TokensFile, func(context.Context) error {
			raw, err := os.ReadFile(o.files.path(c.TokensFile))
			if err != nil {
				return err
			}
			return o.files.write(c.TokensFile, string(raw), 0o640, role)
		}}}, nil
	}
	return c.TokensFile, nil, nil
}

// makeToken makes an admin's token in place of the one that the user had.
func (o *install) makeToken(ctx context.Context, who string) error {
	out, err := o.run(ctx, program{name: "ingot-controller", args: []string{"token", "add", tokenName(who), "--scope",
		"admin", "--replace", "--config", o.files.path(configFile)}})
	if err != nil {
		return err
	}
	o.secret[who] = strings.TrimSpace(out)
	if o.active(ctx, service) {
		_, err = o.run(ctx, program{name: "systemctl", args: []string{"reload", service}})
	}
	return err
}

var notOfName = regexp.MustCompile(`[^a-z0-9._-]`)

// tokenName is the actor in the audit log.
func tokenName(who string) string {
	return "admin-" + notOfName.ReplaceAllLiteralString(strings.ToLower(who), "-")
}

func (o *install) checkController(ctx context.Context) (string, []change, error) {
	c, _, err := o.readConfig()
	if err != nil {
		return "", nil, err
	}
	var missing []change
	if !o.enabled(ctx, service) || !o.active(ctx, service) {
		missing = append(missing, change{"enable and start " + service, func(ctx context.Context) error {
			return o.startController(ctx, c, "enable", "--now")
		}})
	} else if o.outdated(ctx, service, configFile) {
		missing = append(missing, change{"restart " + service, func(ctx context.Context) error {
			return o.startController(ctx, c, "restart")
		}})
	} else if err := ready(ctx, c.Listen.HTTP); err != nil {
		return "", nil, fmt.Errorf("%s runs and is not ready: %w; journalctl -u %s", service, err, service)
	}
	return service + " is enabled and ready", missing, nil
}

func (o *install) startController(ctx context.Context, c controllerConfig, verb ...string) error {
	if _, err := o.run(ctx, program{name: "systemctl", args: append(verb, service)}); err != nil {
		return fmt.Errorf("%w\n%s", err, o.journal(ctx, service))
	}
	if err := until(ctx, startTime, func() error { return ready(ctx, c.Listen.HTTP) }); err != nil {
		return fmt.Errorf("%w\n%s", err, o.journal(ctx, service))
	}
	return nil
}

// journal returns a unit's last lines, for an error.
func (o *install) journal(ctx context.Context, unit string) string {
	out, err := o.run(ctx, program{name: "journalctl", args: []string{"--no-pager", "-n", "10", "-o", "cat", "-u", unit}})
	if err != nil {
		return err.Error()
	}
	return out
}

// ready asks the controller whether it serves.
func ready(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen.http: %w", err)
	}
	url := "http://" + net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port) + "/readyz"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // only to say more
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

func (o *install) checkContexts(ctx context.Context) (string, []change, error) {
	var missing []change
	for _, who := range o.admins() {
		if o.secret[who] == "" && o.works(ctx, who) == nil {
			continue
		}
		missing = append(missing, change{"make context " + o.name + " of the command line for " + who,
			func(ctx context.Context) error { return o.makeContext(ctx, who) }})
	}
	return o.name + " for " + strings.Join(o.admins(), " and "), missing, nil
}

// works asks something that only an admin may know, through the user's context.
func (o *install) works(ctx context.Context, who string) error {
	u, err := user.Lookup(who)
	if err != nil {
		return err
	}
	file, err := client.Load(configPath(u.HomeDir))
	if err != nil {
		return err
	}
	if _, ok := file.Contexts[o.name]; !ok {
		return fmt.Errorf("%s has no context %s", who, o.name)
	}
	_, err = o.ingot(ctx, who, "", "token", "list", "-o", "name")
	return err
}

// ingot runs this program for a user, in the context of this controller.
func (o *install) ingot(ctx context.Context, who, stdin string, args ...string) (string, error) {
	self, err := absoluteSelf()
	if err != nil {
		return "", err
	}
	return o.run(ctx, program{name: self, user: who, stdin: stdin, args: append([]string{"--context", o.name,
		"--retry-for", "5s"}, args...)})
}

func (o *install) makeContext(ctx context.Context, who string) error {
	c, _, err := o.readConfig()
	if err != nil {
		return err
	}
	roots, err := pki.LoadCerts(o.files.path(c.DataDir + "/ca.pem"))
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(c.Listen.Frontpage)
	if err != nil {
		return fmt.Errorf("listen.frontpage: %w", err)
	}
	if o.secret[who] == "" {
		if err := o.makeToken(ctx, who); err != nil {
			return err
		}
	}
	self, err := absoluteSelf()
	if err != nil {
		return err
	}
	_, err = o.run(ctx, program{name: self, user: who, stdin: o.secret[who] + "\n", args: []string{"config",
		"set-context", o.name, "--server", net.JoinHostPort(o.name, port), "--ca-hash", pki.Fingerprint(roots[0].Raw),
		"--token-stdin"}})
	if err != nil {
		return err
	}
	delete(o.secret, who)
	return until(ctx, reloadTime, func() error { return o.works(ctx, who) })
}
