package command

import "testing"

func TestErrorsKeepTheirLines(t *testing.T) {
	for text, want := range map[string]string{
		"one":                          "one",
		"the data is lost\nGive --yes": "the data is lost\n  Give --yes",
		"one\r\n\x1b[31mtwo\n":         "one\n  [31mtwo",
	} {
		if got := lines(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
