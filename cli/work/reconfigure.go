package work

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

type reconfigFlags struct {
	file, hostname, defaultInput string
	allow                        []string
	smtp                         bool
	acceptedDrift                string
	confirm                      time.Duration
}

func (a commands) reconfigureCmd() *cobra.Command {
	var w command.WorkFlags
	var b command.Bulk
	var r reconfigFlags
	cmd := &cobra.Command{
		Use:   "reconfigure MACHINE…",
		Short: "Set hostname, firewall and interfaces; rolled back if the machine is cut off",
		Long: `Apply host configuration to a machine in phase READY or MAINTENANCE. It stays only when the
agent reaches the controller with it: by a new look-up, connection and handshake, from the new
address. Else it is rolled back, also when the agent has died or the machine was rebooted in
between.

Give it as a file with the fields of NetReconfig, or with flags; a flag wins over the file. A
firewall policy is the whole content of Ingot's own table, and interfaces are all that Ingot
configures: what is not named is gone. --allow takes PROTOCOL[:PORT[-PORT]][@CIDR][%RATE], where
RATE is new connections a second.

What another party has changed on the machine since refuses the command with CONFIG_DRIFT, the
difference and its digest. --accept-drift DIGEST overwrites that difference and no other.` +
			command.TargetsHelp + command.WaitHelp,
		Example: `  ingot reconfigure m-1 --hostname web-7
  ingot reconfigure m-1 --default-input drop --allow tcp:22@10.0.0.0/8 --allow tcp:443 --allow icmp
  ingot reconfigure m-1 -f host.yaml

  # host.yaml
  hostname: web-7
  firewall:
    default_input: drop
    allow:
      - {protocol: tcp, port_from: 22, source_cidr: 10.0.0.0/8}
  interfaces:
    - name: bond0
      bond_members: [eth0, "52:54:00:12:34:56"]
      bond: {mode: 802.3ad}
      addresses: [192.0.2.7/24]
      gateway: 192.0.2.1
      dns_servers: [192.0.2.53]
    - {name: storage, vlan_id: 20, parent: bond0, mtu: 9000, addresses: [10.20.0.7/16]}`,
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := a.netReconfig(cmd, &r)
			if err != nil {
				return err
			}
			text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(config)
			if err != nil {
				return err
			}
			return a.app.WorkOn(
				cmd,
				args,
				&b,
				&w,
				&pb.RolloutSpec{Type: "RECONFIGURE", Params: map[string]string{"config": string(text)}},
				func(ctx context.Context, svc *command.Services, machine, id string, secs int32) (*pb.Operation,
					error) {
					return svc.Machines.ReconfigureMachine(ctx, &pb.ReconfigureMachineRequest{
						MachineId: machine, RequestId: id, ValidateOnly: b.ValidateOnly, Config: config, TimeoutSeconds: secs,
					})
				},
			)
		},
	}
	w.Register(cmd)
	f := cmd.Flags()
	f.StringVarP(&r.file, "file", "f", "", "YAML or JSON file with a NetReconfig; - is standard input")
	f.StringVar(&r.hostname, "hostname", "", "new hostname")
	f.StringVar(&r.defaultInput, "default-input", "", "accept or drop: what happens to input that no rule allows")
	f.StringArrayVar(&r.allow, "allow", nil, "rule such as tcp:22@10.0.0.0/8; may be given several times")
	f.BoolVar(&r.smtp, "smtp-egress", false, "let the machine send mail (TCP ports 25, 465 and 587)")
	f.StringVar(&r.acceptedDrift, "accept-drift", "",
		"digest of the one difference made by another party that may be overwritten")
	b.Register(a.app, cmd)
	f.DurationVar(&r.confirm, "confirm-timeout", 0, "time to prove that the controller is still reached (default 60s)")
	command.Fixed(cmd, "default-input", "accept", "drop")
	return cmd
}

// netReconfig reads the file, if any, and lays the flags over it.
func (a commands) netReconfig(cmd *cobra.Command, r *reconfigFlags) (*pb.NetReconfig, error) {
	config := &pb.NetReconfig{}
	if r.file != "" {
		if err := a.app.ReadMessage(r.file, config); err != nil {
			return nil, err
		}
	}
	given := cmd.Flags().Changed
	if given("hostname") {
		config.Hostname = r.hostname
	}
	if given("accept-drift") {
		if !isDigest(r.acceptedDrift) {
			return nil, command.Invalidf("--accept-drift %q: want the digest that the refusal names, sha256: and 64 hex digits",
				r.acceptedDrift)
		}
		config.AcceptedDrift = r.acceptedDrift
	}
	if given("confirm-timeout") {
		var err error
		if config.ConfirmTimeoutSeconds, err = command.Seconds("--confirm-timeout", r.confirm, time.Second); err != nil {
			return nil, err
		}
	}
	if given("default-input") || given("allow") || given("smtp-egress") {
		if err := r.firewall(config, given); err != nil {
			return nil, err
		}
	}
	if config.GetHostname() == "" && config.GetFirewall() == nil && len(config.GetInterfaces()) == 0 {
		return nil, command.Usagef("nothing to configure: give -f, --hostname, --default-input, --allow or --smtp-egress")
	}
	return config, nil
}

func (r *reconfigFlags) firewall(config *pb.NetReconfig, given func(string) bool) error {
	if config.Firewall == nil {
		config.Firewall = &pb.FirewallPolicy{}
	}
	if given("default-input") {
		config.Firewall.DefaultInput = r.defaultInput
	}
	if given("smtp-egress") {
		config.Firewall.SmtpEgressAllowed = r.smtp
	}
	if !given("allow") {
		return nil
	}
	config.Firewall.Allow = nil
	for _, text := range r.allow {
		rule, err := parseRule(text)
		if err != nil {
			return err
		}
		config.Firewall.Allow = append(config.Firewall.Allow, rule)
	}
	return nil
}

// parseRule reads PROTOCOL[:PORT[-PORT]][@CIDR][%RATE]. What the parts may be is the server's to judge.
func parseRule(text string) (*pb.FirewallRule, error) {
	rest, rate, hasRate := strings.Cut(text, "%")
	rest, cidr, hasCIDR := strings.Cut(rest, "@")
	proto, ports, hasPorts := strings.Cut(rest, ":")
	rule := &pb.FirewallRule{Protocol: proto, SourceCidr: cidr}
	var err error
	if hasRate {
		rule.RatePerSecond, err = number(rate)
	}
	if err == nil && hasPorts {
		from, to, isRange := strings.Cut(ports, "-")
		if rule.PortFrom, err = number(from); err == nil && isRange {
			rule.PortTo, err = number(to)
		}
	}
	if err != nil || proto == "" || hasCIDR && cidr == "" { // without a network it would let in everybody
		return nil, command.Invalidf(
			"--allow %q: want PROTOCOL[:PORT[-PORT]][@CIDR][%%RATE], such as tcp:22@10.0.0.0/8",
			text,
		)
	}
	return rule, nil
}

func isDigest(s string) bool {
	text, ok := strings.CutPrefix(s, "sha256:")
	b, err := hex.DecodeString(text)
	return ok && err == nil && len(b) == sha256.Size && strings.ToLower(s) == s
}

func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}
