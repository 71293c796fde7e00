package rig

import (
	"slices"
	"testing"
)

func TestWordsAreThoseOfAShell(t *testing.T) {
	t.Parallel()
	if got := Words(`ingot x 'r42-[01-10]' --comment "a b"`); !slices.Equal(got,
		[]string{"ingot", "x", "r42-[01-10]", "--comment", "a b"}) {
		t.Errorf("%q", got)
	}
}
