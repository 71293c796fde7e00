package bmc

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// writeFiles writes what ipmi_sim reads (ipmi_lan(5), ipmi_sim_cmd(5)). The first holds the password.
func (s *IPMI) writeFiles() error {
	lan, err := s.lanConf()
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path("lan.conf"), []byte(lan), 0o600); err != nil {
		return err
	}
	all := s.cfg.Emulation
	if all == "" {
		all = s.emulation() + s.fruLines()
	}
	if err := os.WriteFile(s.path("bmc.emu"), []byte(all), 0o600); err != nil {
		return err
	}
	// It holds what the BMC keeps over a restart; a new machine has nothing there.
	return os.MkdirAll(s.path("state"), 0o700)
}

// failedSupply is a sensor of a power supply (42.2, type 08h) of which offsets 0 and 1 are true: it is there, and has
// failed. The long line is its compact sensor record (43.2), named "PSU2".
const failedSupply = `sensor_add 0x20 0 2 0x08 0x6f
sensor_set_event_support 0x20 0 2 enable scanning per-state 000000000000000 000000000000000 000000000000000 000000000000000
sensor_set_bit 0x20 0 2 0 1 0
sensor_set_bit 0x20 0 2 1 1 0
main_sdr_add 0x20 0 0 0x51 2 0x1f 0x20 0 2 0x0a 2 0x67 0x40 0x08 0x6f 3 0 3 0 3 0 0xc0 0 0 0 0 0 0 0 0 0 0 0xc4 0x50 0x53 0x55 0x32
`

func (s *IPMI) emulation() string {
	if s.cfg.FailedSupply {
		return emulation + failedSupply
	}
	return emulation
}

// emulation: one controller with an event log, in which it notes its own start, and one sensor, the temperature of the
// air that comes in: 23 degrees. The long line is its full sensor record (IPMI 2.0, 43.1), named "Inlet Temp".
const emulation = `mc_setbmc 0x20
mc_add 0x20 0 has-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
sel_add 0x20 0x02 0 0 0 0 0x20 0 4 0x1d 1 0x6f 1 0xff 0xff
sensor_add 0x20 0 1 1 1
sensor_set_value 0x20 0 1 23 0
sensor_set_event_support 0x20 0 1 enable scanning per-state 000000000000000 000000000000000 000000000000000 000000000000000
main_sdr_add 0x20 0 0 0x51 1 0x35 0x20 0 1 7 1 0x67 0x68 1 1 0 0 0 0 0 0 0 1 0 0 1 0 0 0 0 0 0 0 0 0 0xff 0 0 0 0 0 0 0 0 0 0 0 0 0xca 0x49 0x6e 0x6c 0x65 0x74 0x20 0x54 0x65 0x6d 0x70
`

// fruLines give the controller its FRU, with a product area (Platform Management FRU Information Storage Definition
// 1.3, 8 and 12), and start it.
func (s *IPMI) fruLines() string {
	about := s.cfg.Chassis.About()
	area := []byte{1, 0, 0} // version, length, English
	for _, text := range []string{about.vendor(), about.model(), "", "", about.Serial} {
		area = append(area, 0xc0|byte(len(text))) // eight-bit ASCII
		area = append(area, text...)
	}
	area = append(area, 0xc1) // no more fields
	for len(area)%8 != 7 {
		area = append(area, 0)
	}
	area[1] = byte(len(area)+1) / 8
	all := slices.Concat(summed([]byte{1, 0, 0, 0, 1, 0, 0}), summed(area))
	var b strings.Builder
	fmt.Fprintf(&b, "mc_add_fru_data 0x20 0 %d data", len(all))
	for _, x := range all {
		fmt.Fprintf(&b, " %#02x", x)
	}
	return b.String() + "\nmc_enable 0x20\n"
}

// summed adds the byte that makes the sum zero.
func summed(b []byte) []byte {
	var sum byte
	for _, x := range b {
		sum += x
	}
	return append(b, -sum)
}

// helperScript does what ChassisControl does. The simulator stands still while its helper runs, for each question anew.
// perl, which every Debian has, starts in a tenth of the time of this program.
const helperScript = `use Socket;
socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
connect($s, pack_sockaddr_un(shift)) or die "reach the machine: $!";
shift;
syswrite($s, "@ARGV\n");
local $/;
my $answer = <$s>;
die "the machine says: $answer" unless $answer =~ s/^ok\n//;
print $answer;
`

// helper returns the command line for the simulator's questions, up to the socket.
func (s *IPMI) helper() ([]string, error) {
	if len(s.cfg.Helper) > 0 {
		return s.cfg.Helper, nil
	}
	if perl, err := exec.LookPath("perl"); err == nil {
		script := s.path("helper.pl")
		return []string{perl, script}, os.WriteFile(script, []byte(helperScript), 0o600)
	}
	self, err := os.Executable()
	return []string{self, ControlCommand}, err
}

func (s *IPMI) lanConf() (string, error) {
	helper, err := s.helper()
	if err != nil {
		return "", err
	}
	words := append(append([]string(nil), helper...), s.path("chassis.sock"), "0x20")
	for _, word := range append([]string{s.cfg.User, s.cfg.Password}, words...) {
		if word == "" || strings.ContainsAny(word, " \t\r\n\"\\'$`;&|<>*?()") {
			return "", fmt.Errorf("ipmi_sim cannot take a word that is empty or has blanks, quotes or marks of the shell: %q",
				word)
		}
	}
	if len(s.cfg.User) > 16 || len(s.cfg.Password) > 20 {
		return "", fmt.Errorf("IPMI takes names of at most 16 bytes and passwords of at most 20")
	}
	return fmt.Sprintf(`name "machine"
set_working_mc 0x20
  startlan 1
    addr %s %d
    priv_limit admin
    allowed_auths_callback md5
    allowed_auths_user md5
    allowed_auths_operator md5
    allowed_auths_admin md5
    guid %s
  endlan
  chassis_control "%s"
  sol "tcp:%s" 115200
  user 2 true "%s" "%s" admin 10 md5
`, s.cfg.Addr.Addr(), s.cfg.Addr.Port(), guid(s.cfg.Chassis.About().UUID), strings.Join(words, " "),
		s.console.addr(), s.cfg.User, s.cfg.Password), nil
}

// guid is 32 hex digits whatever the machine calls itself.
func guid(uuid string) string {
	hex := strings.ReplaceAll(uuid, "-", "")
	return (hex + strings.Repeat("0", 32))[:32]
}
