package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

// TestTheFileRuns does what the head of deploy/compose.yaml says, with the unpacked images: a token, a controller on a
// real Postgres until its health check is well, the command line, and a site agent that enrols.
func TestTheFileRuns(t *testing.T) {
	p := mustLoad(t)
	openDatabase(t, service(t, p, "postgres"))
	c := newContainer(t, p, "controller", service(t, p, "controller"), nil)
	lines := strings.Fields(
		c.must(c.entry("token", "add", "admin", "--scope", "admin", "--config", "/etc/ingot/controller.yaml")...),
	)
	token := lines[len(lines)-1]
	healthy := func() error {
		_, err := c.try(c.service.HealthCheck.Test[1:]...)
		return err
	}
	if healthy() == nil {
		t.Error("ready before it runs")
	}
	pid, stop := c.up()
	eventually(t, "the health check of the controller is well", func() bool { return healthy() == nil })
	for _, port := range c.service.Ports {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port.Published), time.Second)
		if err != nil {
			t.Errorf("published, and nothing listens: %v", err)
			continue
		}
		conn.Close()
	}
	status(t, pid, map[string]string{"Uid": "65532\t65532\t65532\t65532", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "NoNewPrivs": "1"})

	// The command line, in the controller's container and of its own image.
	c.service.Environment["INGOT_TOKEN"] = &token
	if out := c.must("/usr/bin/ingot", "agent", "list", "--output", "name"); out != "" {
		t.Errorf("agents of an empty fleet: %s", out)
	}
	siteToken := c.must("/usr/bin/ingot", "token", "issue", "--role", "site", "--site", "default", "--bare")
	cli := commandLine(t, p, c, token)
	if out := cli.must(cli.entry("token", "list", "--enrolment")...); !strings.Contains(out, "default") {
		t.Errorf("the command line's own image: %s", out)
	}

	must(t, "ip", "link", "add", settings["INGOT_SITE_INTERFACE"], "type", "veth", "peer", "name", "site1")
	site := newContainer(t, p, "agent", service(t, p, "site"), map[string]string{"site-token": siteToken})
	agent, stopSite := site.up()
	eventually(t, "the site's agent is connected", func() bool {
		out, err := cli.try(cli.entry("agent", "list", "--filter", "role=SITE,connected=true", "--output", "name")...)
		return err == nil && out != ""
	})
	status(t, agent, map[string]string{"Uid": "65532\t65532\t65532\t65532", "CapEff": "0000000000002400",
		"CapBnd": "0000000000002400"})
	stopSite()
	stop()
	if healthy() == nil {
		t.Error("ready after it has ended")
	}
}

// commandLine is the image of the command line, told where the controller is.
func commandLine(t *testing.T, p *types.Project, c *container, token string) *container {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(c.root, *c.service.Environment["INGOT_CA_FILE"]))
	if err != nil {
		t.Fatal(err)
	}
	server, file := settings["INGOT_NAME"]+":50051", "/etc/ingot/ca.pem"
	own := types.ServiceConfig{Name: "cli"}
	own.Environment = types.MappingWithEquals{"INGOT_SERVER": &server, "INGOT_CA_FILE": &file, "INGOT_TOKEN": &token}
	cli := newContainer(t, p, "cli", own, nil)
	cli.file(file, string(ca))
	return cli
}
