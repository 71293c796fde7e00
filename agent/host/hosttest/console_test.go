package hosttest

import (
	"io"
	"slices"
	"strings"
	"testing"
)

// TestConsole: lines come whole and at once, however they were written.
func TestConsole(t *testing.T) {
	t.Parallel()
	var got []string
	c := console{line: func(l string) { got = append(got, l) }}
	if _, err := io.Copy(&c, strings.NewReader("one\r\n\ntw")); err != nil || !slices.Equal(got, []string{"one", ""}) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := c.Write([]byte("o\nthree")); err != nil || !slices.Equal(got, []string{"one", "", "two"}) ||
		c.said.String() != "one\r\n\ntwo\nthree" {
		t.Errorf("%q, %v", got, err)
	}
}
