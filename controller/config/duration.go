package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Duration is a time.Duration that is also written in whole days: "7d".
type Duration struct{ time.Duration }

func days(n int) Duration { return Duration{time.Duration(n) * 24 * time.Hour} }

// UnmarshalYAML reads "90s", "1h30m" or "7d". A bare number is refused: its unit would be a guess.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	parsed, err := parseDuration(n.Value)
	if err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %v", n.Line, err)}}
	}
	*d = parsed
	return nil
}

func parseDuration(s string) (Duration, error) {
	if digits, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(digits, 10, 16); err == nil {
			return days(int(n)), nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || s == "0" {
		return Duration{}, fmt.Errorf("%q is not a duration such as 10s, 1h30m or 7d", s)
	}
	return Duration{d}, nil
}
