package signon

import (
	"context"
	"errors"
	"time"

	"golang.org/x/oauth2"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Tokens are what a person has from the provider.
type Tokens struct {
	// ID is the bearer token, Renew what gets the next one; it may be empty.
	ID, Renew string
	Person    access.Person
}

// Attempt is a sign-on under way: what the browser keeps until it comes back.
type Attempt struct {
	State, Nonce, Verifier, Redirect string
}

func (p *Provider) oauth(d document, redirect string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, RedirectURL: redirect, Scopes: p.scopes(d),
		Endpoint: oauth2.Endpoint{AuthURL: d.Authorization, TokenURL: d.Token},
	}
}

// Begin returns the page of the provider where a person signs on.
func (p *Provider) Begin(ctx context.Context, a Attempt) (string, error) {
	w, err := p.ask(ctx, time.Time{})
	if err != nil {
		return "", err
	}
	return p.oauth(w.document, a.Redirect).AuthCodeURL(a.State, oauth2.S256ChallengeOption(a.Verifier),
		oauth2.SetAuthURLParam("nonce", a.Nonce)), nil
}

// Finish trades the code that the browser brings back.
func (p *Provider) Finish(ctx context.Context, a Attempt, code string) (Tokens, error) {
	w, err := p.ask(ctx, time.Time{})
	if err != nil {
		return Tokens{}, err
	}
	ctx, cancel := p.calling(ctx)
	defer cancel()
	got, err := p.oauth(w.document, a.Redirect).Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Tokens{}, p.refused(err)
	}
	return p.tokens(ctx, got, a.Nonce)
}

// Renew gets new tokens of the person with this identity.
func (p *Provider) Renew(ctx context.Context, renew, identity string) (Tokens, error) {
	w, err := p.ask(ctx, time.Time{})
	if err != nil {
		return Tokens{}, err
	}
	ctx, cancel := p.calling(ctx)
	defer cancel()
	source := p.oauth(w.document, "").TokenSource(ctx, &oauth2.Token{RefreshToken: renew})
	got, err := source.Token()
	if err != nil {
		return Tokens{}, p.refused(err)
	}
	fresh, err := p.tokens(ctx, got, "")
	if err == nil && fresh.Person.Identity() != identity {
		return Tokens{}, invalid("it is another person's")
	}
	if fresh.Renew == "" {
		fresh.Renew = renew
	}
	return fresh, err
}

func (p *Provider) calling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, p.cfg.Client), 2*askTime)
}

// refused distinguishes a provider that refuses from one that does not answer.
func (p *Provider) refused(err error) error {
	var answer *oauth2.RetrieveError
	if errors.As(err, &answer) && answer.Response.StatusCode < 500 {
		return failure.Unauthenticated(auth.ReasonBearerInvalid, "the provider refuses the sign-on: %s",
			plain(answer.ErrorCode+" "+answer.ErrorDescription)).Wrap(err)
	}
	return failure.Unavailable(ReasonUnavailable, "the provider of sign-ons, %s, does not answer; sessions go on",
		p.cfg.Issuer).Wrap(err)
}

func (p *Provider) tokens(ctx context.Context, got *oauth2.Token, nonce string) (Tokens, error) {
	id, _ := got.Extra("id_token").(string) // none is the empty one, which is refused here
	if id == "" {
		return Tokens{}, invalid("the provider has given no ID token")
	}
	who, err := p.verify(ctx, id, expected{nonce, p.cfg.ClientID}, true)
	return Tokens{ID: id, Renew: got.RefreshToken, Person: who}, err
}
