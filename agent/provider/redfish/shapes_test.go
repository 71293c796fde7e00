package redfish_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ingot-metal/ingot/agent/provider/redfish"
)

// shape is a service made of documents: it logs in, serves them, switches and changes its system, and records its
// requests.
type shape struct {
	mu     sync.Mutex
	docs   map[string]map[string]any
	posts  []string // reset types
	patchs []string // path and body
	server *httptest.Server
}

func loadShape(t *testing.T, file string) *shape {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]map[string]any{}
	if err := json.Unmarshal(text, &docs); err != nil {
		t.Fatal(err)
	}
	return serveShape(t, docs)
}

func serveShape(t *testing.T, docs map[string]map[string]any) *shape {
	s := &shape{docs: docs}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

func (s *shape) open(t *testing.T, macs ...string) *redfish.Client {
	t.Helper()
	c, err := redfish.Open(t.Context(), redfish.Config{URL: s.server.URL, Username: "u", Password: "p", MACs: macs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return c
}

const token = "token-1"

func (s *shape) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimSuffix(r.URL.Path, "/")
	if r.URL.RawQuery != "" {
		key += "?" + r.URL.RawQuery
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	switch {
	case strings.HasSuffix(key, "/Sessions") && r.Method == http.MethodPost:
		w.Header().Set("X-Auth-Token", token)
		w.Header().Set("Location", key+"/1")
		w.WriteHeader(http.StatusCreated)
	case key != "/redfish/v1" && r.Header.Get("X-Auth-Token") != token && r.Header.Get("Authorization") != "Basic dTpw":
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost:
		s.reset(w, key, body)
	case s.docs[key] == nil:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodPatch:
		s.patch(w, key, body)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.docs[key])
	}
}

var states = map[string]string{"On": "On", "ForceOff": "Off", "GracefulShutdown": "Off"}

func (s *shape) reset(w http.ResponseWriter, key string, body []byte) {
	var in struct{ ResetType string }
	system, ok := strings.CutSuffix(key, "/Actions/ComputerSystem.Reset")
	if err := json.Unmarshal(body, &in); err != nil || !ok || s.docs[system] == nil || states[in.ResetType] == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.posts = append(s.posts, in.ResetType)
	s.docs[system]["PowerState"] = states[in.ResetType]
	w.WriteHeader(http.StatusNoContent)
}

// patch changes the document alone: a settings object is one of its own until the reset.
func (s *shape) patch(w http.ResponseWriter, key string, body []byte) {
	s.patchs = append(s.patchs, fmt.Sprintf("%s %s", key[strings.LastIndex(key, "/")+1:], body))
	var in map[string]any
	if err := json.Unmarshal(body, &in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	doc := s.docs[key]
	for name, value := range in {
		old, ok := doc[name].(map[string]any)
		if more, both := value.(map[string]any); ok && both {
			for k, v := range more {
				old[k] = v
			}
			continue
		}
		doc[name] = value
	}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte("{}"))
}

func (s *shape) asked() (posts, patchs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.posts), slices.Clone(s.patchs)
}
