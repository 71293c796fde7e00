package signon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/safetext"
)

// algorithms are signatures by a key that the provider alone has.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

const (
	maxToken  = 12 << 10
	maxGroups = 1000
	maxName   = 128
	// skew is how far the provider's clock may be ahead.
	skew = time.Minute
)

// Verify implements auth.Verifier.
func (p *Provider) Verify(ctx context.Context, token string, wait bool) (access.Person, error) {
	return p.verify(ctx, token, expected{}, wait)
}

// expected is what an ID token must hold beyond what each must: the nonce of a sign-on, and its one client.
type expected struct{ nonce, client string }

// verify checks an ID token.
func (p *Provider) verify(ctx context.Context, token string, want expected, wait bool) (who access.Person, err error) {
	if len(token) > maxToken {
		return who, invalid("it is too long")
	}
	signed, err := jose.ParseSigned(token, algorithms)
	if err != nil || len(signed.Signatures) != 1 {
		return who, invalid("it is no signed token")
	}
	header := signed.Signatures[0].Header
	// Other tokens of the provider name their type: at+jwt (RFC 9068), logout+jwt, secevent+jwt and others.
	kind, _ := header.ExtraHeaders[jose.HeaderType].(string)
	if kind != "" && !strings.EqualFold(strings.TrimPrefix(strings.ToLower(kind), "application/"), "jwt") {
		return who, invalid("it is a token of type " + plain(kind) + ", and should be an ID token")
	}
	w, err := p.wordWith(ctx, header.KeyID, wait)
	if err != nil {
		return who, err
	}
	verifier := oidc.NewVerifier(p.cfg.Issuer, keySet{w.keys, header.KeyID}, &oidc.Config{
		SkipClientIDCheck: true, Now: p.cfg.Clock.Now, SupportedSigningAlgs: names(algorithms),
	})
	id, err := verifier.Verify(ctx, token)
	var expired *oidc.TokenExpiredError
	switch {
	case errors.As(err, &expired):
		return who, signOnExpired()
	case err != nil:
		return who, invalid("its signature, issuer or times do not hold").Wrap(err)
	case want.nonce != "" && id.Nonce != want.nonce:
		return who, invalid("it is the answer to another sign-on")
	case id.IssuedAt.After(p.cfg.Clock.Now().Add(skew)):
		return who, invalid("it is from the future; compare the clocks of the provider and the controllers")
	}
	var claims map[string]json.RawMessage
	if err := id.Claims(&claims); err != nil {
		return who, invalid("its claims cannot be read").Wrap(err)
	}
	if err := idTokenAlone(claims); err != nil {
		return who, err
	}
	if !p.forUs(id.Audience, text(claims["azp"])) || want.client != "" && !slices.Contains(id.Audience, want.client) {
		return who, invalid("it is for " + strings.Join(id.Audience, ", ") + ", which is none of this controller's clients")
	}
	who = p.person(id, claims)
	if !p.cfg.Clock.Now().Before(who.ExpiresAt) {
		return access.Person{}, signOnExpired()
	}
	return who, nil
}

// idTokenAlone refuses tokens that providers sign with the same key and that are no ID tokens: those whose typ claim
// names another type, those with the scopes of an access token, and those of events, such as a logout.
func idTokenAlone(claims map[string]json.RawMessage) error {
	switch kind := text(claims["typ"]); {
	case kind != "" && !strings.EqualFold(kind, "ID"):
		return invalid("it is a token of type " + plain(kind) + ", and should be an ID token")
	case claims["events"] != nil:
		return invalid("it is the token of an event, and should be an ID token")
	case claims["token_use"] != nil && text(claims["token_use"]) != "id", claims["scope"] != nil || claims["scp"] != nil:
		return invalid("it is an access token, and should be an ID token")
	}
	return nil
}

func signOnExpired() *failure.Error {
	return failure.Unauthenticated(auth.ReasonSignOnExpired, "the sign-on has expired; sign on again (ingot login)")
}

func invalid(why string) *failure.Error {
	return failure.Unauthenticated(auth.ReasonBearerInvalid, "the token of the sign-on does not count: %s", why)
}

// wordWith is the provider's word with a key in it, as far as it has one.
func (p *Provider) wordWith(ctx context.Context, keyID string, wait bool) (word, error) {
	w, ok := p.known()
	if ok && len(w.keys.Key(keyID)) > 0 {
		if p.cfg.Clock.Now().Sub(w.fetched) >= freshFor {
			p.begin() // for those who come later: a key may have been withdrawn
		}
		return w, nil
	}
	switch {
	case !wait && p.due():
		return word{}, auth.ErrWouldWait
	case !wait && !ok:
		return word{}, auth.ErrWouldWait // the handler returns why the provider is not known
	case !wait:
		return w, nil
	}
	return p.ask(ctx, w.fetched)
}

// keySet has the key of one id.
type keySet struct {
	all jose.JSONWebKeySet
	id  string
}

// VerifySignature implements oidc.KeySet.
func (k keySet) VerifySignature(_ context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSigned(token, algorithms)
	if err != nil {
		return nil, err
	}
	for _, key := range k.all.Keys {
		if key.KeyID != k.id && k.id != "" || key.Use != "" && key.Use != "sig" || !key.IsPublic() {
			continue
		}
		if payload, err := signed.Verify(&key); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("none of the provider's keys has signed it")
}

func names(algorithms []jose.SignatureAlgorithm) (out []string) {
	for _, a := range algorithms {
		out = append(out, string(a))
	}
	return out
}

// forUs reports whether a token was made for a client of ours (OpenID Connect Core 1.0, section 3.1.3.7).
func (p *Provider) forUs(audience []string, party string) bool {
	ours := func(client string) bool {
		return client != "" && (client == p.cfg.ClientID || client == p.cfg.CLIClientID ||
			slices.Contains(p.cfg.Audiences, client))
	}
	others := slices.ContainsFunc(audience, func(client string) bool { return !ours(client) })
	// A token for others too must say that one of our clients has asked for it.
	return slices.ContainsFunc(audience, ours) && (party == "" && !others || ours(party))
}

// person reads who it is. A person without a name there is called by its subject.
func (p *Provider) person(id *oidc.IDToken, claims map[string]json.RawMessage) access.Person {
	who := access.Person{
		Issuer: id.Issuer, Subject: id.Subject, Name: id.Subject, IssuedAt: id.IssuedAt, ExpiresAt: id.Expiry,
		Groups: groups(claims[p.cfg.GroupsClaim]),
	}
	if name := plain(text(claims[p.cfg.NameClaim])); name != "" {
		who.Name = name
	}
	if end := id.IssuedAt.Add(p.cfg.TokenLife); p.cfg.TokenLife > 0 && end.Before(who.ExpiresAt) {
		who.ExpiresAt = end
	}
	who.Session, who.Lasting = session(id, claims)
	return who
}

// session names the sign-on behind a token: by the provider's session, or by when the person signed on. Both stay the
// same when a token is renewed. A provider may say neither.
func session(id *oidc.IDToken, claims map[string]json.RawMessage) (name string, lasting bool) {
	var at float64
	which := "sid " + text(claims["sid"])
	lasting = which != "sid "
	if !lasting && json.Unmarshal(claims["auth_time"], &at) == nil && at > 0 {
		which, lasting = "auth_time "+strconv.FormatInt(int64(at), 10), true
	}
	sum := sha256.Sum256([]byte(id.Issuer + "\x00" + id.Subject + "\x00" + which))
	return "ss-" + hex.EncodeToString(sum[:13]), lasting
}

// groups reads a list of names, or one.
func groups(raw json.RawMessage) []string {
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		if one := text(raw); one != "" {
			list = []string{one}
		}
	}
	return list[:min(len(list), maxGroups)]
}

func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// plain makes a name that can stand in a line of a log.
func plain(name string) string {
	name = safetext.Line(name)
	for len(name) > maxName {
		runes := []rune(name)
		name = string(runes[:len(runes)-1])
	}
	return strings.TrimSpace(name)
}
