package fleet

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Behaviour is how the machines answer commands of one kind.
type Behaviour struct {
	// Time is how long the effect takes; a slow one takes ten times as long.
	Time time.Duration
	// Fail, Silent and Slow are shares of the commands, from 0 to 1: that fail, that are never answered, that are slow.
	Fail, Silent, Slow float64
}

// Script is the behaviour by kind of command; "*" is for the kinds that are not named. Which commands a share falls on
// follows from their ids alone.
type Script map[string]Behaviour

// The kinds of commands that a simulated machine executes.
const (
	kindReboot  = "reboot"
	kindNetboot = "netboot"
	kindRepave  = "repave"
	kindAny     = "*"
)

var kinds = []string{kindReboot, kindNetboot, kindRepave, kindAny}

// ErrScript is returned when a script cannot be read.
var ErrScript = errors.New("a script is KIND:KEY=VALUE,…;… such as repave:time=30s,fail=0.1;*:slow=0.01")

// ParseScript reads one. The empty script does everything at once and without a fault.
func ParseScript(text string) (Script, error) {
	s := Script{}
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		kind, rest, ok := strings.Cut(part, ":")
		if !ok || !slices.Contains(kinds, kind) {
			return nil, fmt.Errorf("%w: not %q; kinds are %s", ErrScript, part, strings.Join(kinds, ", "))
		}
		b, err := parseBehaviour(rest)
		if err != nil {
			return nil, err
		}
		s[kind] = b
	}
	return s, nil
}

func parseBehaviour(text string) (b Behaviour, err error) {
	shares := map[string]*float64{"fail": &b.Fail, "silent": &b.Silent, "slow": &b.Slow}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		share, known := shares[key]
		switch {
		case key == "time":
			b.Time, err = time.ParseDuration(value)
		case known:
			*share, err = strconv.ParseFloat(value, 64)
			if err == nil && (*share < 0 || *share > 1) {
				err = errors.New("a share is between 0 and 1")
			}
		default:
			err = fmt.Errorf("keys are time, %s", strings.Join(slices.Sorted(maps.Keys(shares)), ", "))
		}
		if err != nil {
			return b, fmt.Errorf("%w: %s: %w", ErrScript, pair, err)
		}
	}
	return b, nil
}

// fate is what one command meets.
type fate struct {
	time         time.Duration
	fail, silent bool
}

// of decides for one command.
func (s Script) of(kind, commandID string) fate {
	b, ok := s[kind]
	if !ok {
		b = s[kindAny]
	}
	f := fate{time: b.Time, fail: share(commandID, "fail") < b.Fail, silent: share(commandID, "silent") < b.Silent}
	if share(commandID, "slow") < b.Slow {
		f.time *= 10
	}
	return f
}

// share places the command between 0 and 1, independently for each fault.
func share(commandID, fault string) float64 {
	sum := sha256.Sum256([]byte(fault + " " + commandID))
	const bits = 53 // what a float64 holds exactly
	return float64(binary.BigEndian.Uint64(sum[:])>>(64-bits)) / (1 << bits)
}
