package pgtx

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

func JSONMap(m map[string]string) ([]byte, error) {
	if m == nil {
		return []byte("{}"), nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("serialize: %w", err)
	}
	return b, nil
}

func OrText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// Wrap adds the failed action to an error.
func Wrap(err error, what string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func NotNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func NonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func Differing(a, b map[string]string) []string {
	var out []string
	for k, v := range a {
		if b[k] != v {
			out = append(out, k)
		}
	}
	for k, v := range b {
		if _, ok := a[k]; !ok && v != "" {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

func TimePtr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func TimeVal(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func StrVal(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func StrPtr(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
