package identity_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/identity"
)

var (
	ours   = &identity.Key{Digest: []byte("ours")}
	others = &identity.Key{Digest: []byte("others")}
	vendor = &identity.Key{Digest: []byte("ours"), Vendor: true}
)

// TestVerdicts walks the cases that a person would name.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	known := identity.Facts{Recorded: ours.Digest, Trust: identity.TrustFirstUse, Installs: true}
	with := func(f identity.Facts, change func(*identity.Facts)) identity.Facts {
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		facts identity.Facts
		want  string
	}{
		"nothing known, nothing shown": {identity.Facts{Installs: true}, "network"},
		"first use":                    {identity.Facts{Installs: true, Shown: ours}, "tpm first-use"},
		"first use, certified":         {identity.Facts{Installs: true, Shown: vendor}, "tpm vendor"},
		"the known TPM":                {with(known, func(f *identity.Facts) { f.Shown = ours }), "tpm first-use"},
		"the known TPM, certified now": {with(known, func(f *identity.Facts) { f.Shown = vendor }), "tpm vendor"},
		"a box without TPM":            {known, "TPM_REQUIRED"},
		"a box with another TPM":       {with(known, func(f *identity.Facts) { f.Shown = others }), "TPM_MISMATCH"},
		"a board from another machine": {identity.Facts{Shown: ours, Taken: true}, "TPM_KEY_TAKEN"},
		"required, none shown":         {identity.Facts{Required: "tpm"}, "IDENTITY_LEVEL_TOO_LOW"},
		"required, none recorded": {identity.Facts{Required: "tpm", Installs: true, Shown: vendor},
			"IDENTITY_LEVEL_TOO_LOW"},
		"required, to be recorded": {identity.Facts{Required: "tpm", Shown: ours}, "tpm first-use"},
		"required, recorded": {with(known, func(f *identity.Facts) { f.Shown, f.Required = ours, "tpm" }),
			"tpm first-use"},
		"started from an image":             {identity.Facts{Installs: true, MediaAsked: true, Media: true}, "media"},
		"not started from it":               {identity.Facts{Installs: true, MediaAsked: true}, "MEDIA_PROOF_MISSING"},
		"not from it, with the known TPM":   {with(known, func(f *identity.Facts) { f.Shown, f.MediaAsked = ours, true }), "MEDIA_PROOF_MISSING"},
		"from an image, with a TPM":         {identity.Facts{Installs: true, MediaAsked: true, Media: true, Shown: ours}, "tpm first-use"},
		"from an image, known by its TPM":   {with(known, func(f *identity.Facts) { f.MediaAsked, f.Media = true, true }), "TPM_REQUIRED"},
		"media required, from an image":     {identity.Facts{Required: "media", Installs: true, MediaAsked: true, Media: true}, "media"},
		"media required, from the network":  {identity.Facts{Required: "media", Installs: true}, "IDENTITY_LEVEL_TOO_LOW"},
		"media required, first use of TPM":  {identity.Facts{Required: "media", Shown: ours}, "IDENTITY_LEVEL_TOO_LOW"},
		"media required, known by its TPM":  {with(known, func(f *identity.Facts) { f.Shown, f.Required = ours, "media" }), "tpm first-use"},
		"tpm required, from an image alone": {identity.Facts{Required: "tpm", Installs: true, MediaAsked: true, Media: true}, "IDENTITY_LEVEL_TOO_LOW"},
		"no proof contests nothing": {with(known, func(f *identity.Facts) { f.MediaAsked, f.RecordedNow = true, true }),
			"MEDIA_PROOF_MISSING"},
		"network required": {identity.Facts{Required: "network", Installs: true}, "network"},
		"second claim at the first use": {with(known, func(f *identity.Facts) { f.Shown, f.RecordedNow = others, true }),
			"TPM_MISMATCH contested"},
	} {
		v := identity.Decide(c.facts)
		got := string(v.Level)
		if v.Trust != "" {
			got += " " + string(v.Trust)
		}
		if v.Refused != nil {
			got = v.Refused.Reason
		}
		if v.Contested {
			got += " contested"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestNoFallback checks every combination of facts. A machine with a recorded key is certified for that key alone, and
// a required level is never undercut.
func TestNoFallback(t *testing.T) {
	t.Parallel()
	bools := []bool{false, true}
	for _, required := range []identity.Level{"", "network", "media", "tpm"} {
		for _, recorded := range [][]byte{nil, ours.Digest} {
			for _, trust := range []identity.Trust{"", "first-use", "vendor"} {
				for _, shown := range []*identity.Key{nil, ours, others, vendor} {
					for i := range 32 {
						f := identity.Facts{
							Required: required, Recorded: recorded, Trust: trust, Shown: shown,
							RecordedNow: bools[i&1], Installs: bools[i>>1&1], Taken: bools[i>>2&1],
							MediaAsked: bools[i>>3&1], Media: bools[i>>4&1],
						}
						holds(t, f, identity.Decide(f))
					}
				}
			}
		}
	}
}

func holds(t *testing.T, f identity.Facts, v identity.Verdict) {
	t.Helper()
	switch {
	case v.Refused != nil && v.Level != "", v.Refused == nil && (v.Level == "" || v.Contested):
		t.Errorf("%+v: neither refused nor certified: %+v", f, v)
	case v.Refused != nil:
	case f.Recorded != nil && (f.Shown == nil || string(f.Shown.Digest) != string(f.Recorded) ||
		v.Level != identity.LevelTPM):
		t.Errorf("%+v: a known machine is certified as %s", f, v.Level)
	case identity.Higher(v.Level, f.Required) != v.Level:
		t.Errorf("%+v: certified as %s", f, v.Level)
	case f.MediaAsked && !f.Media, v.Level == identity.LevelMedia && !f.Media:
		t.Errorf("%+v: certified as %s without the image", f, v.Level)
	case f.Taken && f.Shown != nil:
		t.Errorf("%+v: certified with another machine's TPM", f)
	}
}
