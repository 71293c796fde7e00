package pki_test

import (
	"crypto/ed25519"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/ingot-metal/ingot/internal/pki"
)

func claims() pki.GrantClaims {
	return pki.GrantClaims{
		CommandID: "cmd-1", TargetID: "m-1", AgentID: "a-1", StateID: "st-1",
		Nonce: []byte{1, 2, 3}, Digest: []byte{4, 5, 6}, Seq: 7, IssuedAtUnixMs: 8,
	}
}

func grantKey(t *testing.T) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pub, key
}

func TestGrantIsBoundToEveryField(t *testing.T) {
	t.Parallel()
	pub, key := grantKey(t)
	sig, err := pki.SignGrant(key, claims())
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.VerifyGrant(pub, claims(), sig); err != nil {
		t.Fatal(err)
	}
	// By reflection, so that a field added later cannot be forgotten in the encoding.
	typ := reflect.TypeFor[pki.GrantClaims]()
	for i := range typ.NumField() {
		c := claims()
		switch f := reflect.ValueOf(&c).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString(f.String() + "x")
		case reflect.Slice:
			f.SetBytes(append([]byte{0}, f.Bytes()...))
		case reflect.Uint64:
			f.SetUint(f.Uint() + 1)
		case reflect.Int64:
			f.SetInt(f.Int() + 1)
		default:
			t.Fatalf("no mutation for %s", typ.Field(i).Name)
		}
		if err := pki.VerifyGrant(pub, c, sig); !errors.Is(err, pki.ErrGrant) {
			t.Errorf("verifies with another %s: %v", typ.Field(i).Name, err)
		}
	}
}

// Another value of the same length is another grant too: a digest always has 32 bytes.
func TestGrantIsBoundToEveryByte(t *testing.T) {
	t.Parallel()
	pub, key := grantKey(t)
	sig, err := pki.SignGrant(key, claims())
	if err != nil {
		t.Fatal(err)
	}
	typ := reflect.TypeFor[pki.GrantClaims]()
	for i := range typ.NumField() {
		c := claims()
		switch f := reflect.ValueOf(&c).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString(f.String()[:f.Len()-1] + "x")
		case reflect.Slice:
			changed := slices.Clone(f.Bytes())
			changed[len(changed)-1] ^= 1
			f.SetBytes(changed)
		default:
			continue
		}
		if err := pki.VerifyGrant(pub, c, sig); !errors.Is(err, pki.ErrGrant) {
			t.Errorf("verifies with another %s of the same length: %v", typ.Field(i).Name, err)
		}
	}
}

// A grant with any field empty would hold for more than one command: it is neither signed nor believed.
func TestGrantNeedsEveryField(t *testing.T) {
	t.Parallel()
	pub, key := grantKey(t)
	for name, empty := range map[string]func(*pki.GrantClaims){
		"command": func(c *pki.GrantClaims) { c.CommandID = "" },
		"target":  func(c *pki.GrantClaims) { c.TargetID = "" },
		"agent":   func(c *pki.GrantClaims) { c.AgentID = "" },
		"state":   func(c *pki.GrantClaims) { c.StateID = "" },
		"nonce":   func(c *pki.GrantClaims) { c.Nonce = nil },
		"digest":  func(c *pki.GrantClaims) { c.Digest = []byte{} },
	} {
		c := claims()
		empty(&c)
		if sig, err := pki.SignGrant(key, c); err == nil {
			t.Errorf("signed without %s", name)
			if err := pki.VerifyGrant(pub, c, sig); err == nil {
				t.Errorf("verifies without %s", name)
			}
		}
	}
	short := claims()
	short.Nonce, short.Digest = []byte{1}, []byte{2}
	if _, err := pki.SignGrant(key, short); err != nil {
		t.Errorf("one byte is not none: %v", err)
	}
}

func TestGrantFieldsCannotShift(t *testing.T) {
	t.Parallel()
	pub, key := grantKey(t)
	a := claims()
	a.CommandID, a.TargetID = "cmd-1m", "-1"
	sig, err := pki.SignGrant(key, a)
	if err != nil {
		t.Fatal(err)
	}
	b := claims()
	b.CommandID, b.TargetID = "cmd-1", "m-1"
	if err := pki.VerifyGrant(pub, b, sig); !errors.Is(err, pki.ErrGrant) {
		t.Fatalf("a byte moved from one field to the next: %v", err)
	}
	c := claims()
	c.Nonce, c.Digest = []byte{1, 2, 3, 4}, []byte{5, 6}
	sig, err = pki.SignGrant(key, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.VerifyGrant(pub, claims(), sig); !errors.Is(err, pki.ErrGrant) {
		t.Fatalf("a byte moved from nonce to digest: %v", err)
	}
}

func TestGrantRefuses(t *testing.T) {
	t.Parallel()
	pub, key := grantKey(t)
	stranger, _ := grantKey(t)
	sig, err := pki.SignGrant(key, claims())
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte{}, sig...)
	flipped[10] ^= 1
	for name, err := range map[string]error{
		"another controller": pki.VerifyGrant(stranger, claims(), sig),
		"changed signature":  pki.VerifyGrant(pub, claims(), flipped),
		"short signature":    pki.VerifyGrant(pub, claims(), sig[:10]),
		"no signature":       pki.VerifyGrant(pub, claims(), nil),
		"no key":             pki.VerifyGrant(nil, claims(), sig),
		"empty claims":       pki.VerifyGrant(pub, pki.GrantClaims{}, sig),
	} {
		if !errors.Is(err, pki.ErrGrant) {
			t.Errorf("%s: %v", name, err)
		}
	}
	open := claims()
	open.Nonce = nil
	if _, err := pki.SignGrant(key, open); err == nil {
		t.Error("signed without a nonce")
	}
	if _, err := pki.SignGrant(nil, claims()); err == nil {
		t.Error("signed without a key")
	}
}
