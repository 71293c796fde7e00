package client

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// endOf reads when an ID token ends. The controller verifies its signature.
func endOf(token string) (time.Time, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, errors.New("it is no JSON web token")
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, errors.New("its claims are not in base64url")
	}
	var claims struct {
		Exp float64 `json:"exp"`
	}
	if err := json.Unmarshal(raw, &claims); err != nil || claims.Exp == 0 {
		return time.Time{}, errors.New("it has no end")
	}
	return time.Unix(int64(claims.Exp), 0), nil
}
