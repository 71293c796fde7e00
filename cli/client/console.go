package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// ErrNoConsole is returned when the controller serves no pages.
var ErrNoConsole = errors.New("the controller serves no REST and no console; set listen.rest in its configuration")

// ConsoleAddress is where the console of the controller at server is, which listens for it at listen.
func ConsoleAddress(server, listen string) (string, error) {
	if listen == "" {
		return "", ErrNoConsole
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("the controller listens at %q: %w", listen, err)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		if host, _, err = net.SplitHostPort(server); err != nil {
			return "", fmt.Errorf("server must be host:port: %w", err)
		}
	}
	return net.JoinHostPort(host, port), nil
}

// LoginCode is what one can sign on to the console with once.
type LoginCode struct {
	Code      string    `json:"code"`
	ExpiresAt time.Time `json:"expires_at"`
	// Message is why there is none.
	Message string `json:"message"`
}

// codeBytes is more than the answer has.
const codeBytes = 16 << 10

// ConsoleCode asks the console at address for a code that is bound to the target's token.
func ConsoleCode(ctx context.Context, t Target, address string) (LoginCode, error) {
	t.Server = address
	cfg, err := tlsConfig(t)
	if err != nil {
		return LoginCode{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+"/console/login-codes", http.NoBody)
	if err != nil {
		return LoginCode{}, fmt.Errorf("ask for a login code: %w", err)
	}
	token, err := t.Bearer(ctx)
	if err != nil {
		return LoginCode{}, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Do(req)
	if err != nil {
		return LoginCode{}, fmt.Errorf("ask for a login code: %w", err)
	}
	defer resp.Body.Close()
	var code LoginCode
	if err := json.NewDecoder(io.LimitReader(resp.Body, codeBytes)).Decode(&code); err != nil {
		return LoginCode{}, fmt.Errorf("ask %s for a login code: %s, which is no answer of a console", address, resp.Status)
	}
	if resp.StatusCode != http.StatusOK {
		return LoginCode{}, fmt.Errorf("no login code: %s", code.Message)
	}
	return code, nil
}
