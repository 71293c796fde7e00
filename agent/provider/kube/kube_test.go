package kube_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/provider/kube"
	"github.com/ingot-metal/ingot/internal/failure"
)

func node(bootID, uuid string) *kube.Node {
	n := &kube.Node{}
	n.Status.NodeInfo.BootID, n.Status.NodeInfo.SystemUUID = bootID, uuid
	return n
}

func TestRecognize(t *testing.T) {
	m := kube.Machine{BootID: "b1", SystemUUID: "4C4C4544-0042-3510-8052-B7C04F4E4B32"}
	for name, c := range map[string]struct {
		n    *kube.Node
		m    kube.Machine
		want string
	}{
		"same boot":                        {node("b1", "4c4c4544-0042-3510-8052-b7c04f4e4b32"), m, kube.ByBootID},
		"same boot, other UUID":            {node("b1", "zzz"), m, kube.ByBootID},
		"rebooted since":                   {node("b0", "4c4c4544004235108052b7c04f4e4b32"), m, kube.BySystemUUID},
		"other machine":                    {node("b0", "zzz"), m, ""},
		"other boot, no UUID known":        {node("b0", ""), m, ""},
		"other UUID, no boot known":        {node("", "zzz"), m, ""},
		"a Node that says nothing":         {node("", ""), m, kube.ByName},
		"a machine of which nothing known": {node("b1", "x"), kube.Machine{}, kube.ByName},
	} {
		if got := kube.Recognize(c.n, c.m); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func pod(t *testing.T, text string) *kube.Pod {
	t.Helper()
	p := &kube.Pod{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFateOf(t *testing.T) {
	const (
		owned  = `"ownerReferences":[{"kind":"ReplicaSet","controller":true}]`
		daemon = `"ownerReferences":[{"kind":"DaemonSet","controller":true}]`
		empty  = `"spec":{"volumes":[{"name":"v","emptyDir":{}}]}`
	)
	all := kube.Allow{Unmanaged: true, LocalData: true}
	for name, c := range map[string]struct {
		text  string
		allow kube.Allow
		want  kube.Fate
	}{
		"of a controller":    {`{"metadata":{` + owned + `}}`, kube.Allow{}, kube.Evict},
		"of a DaemonSet":     {`{"metadata":{` + daemon + `}}`, all, kube.Leave},
		"static":             {`{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}}}`, all, kube.Leave},
		"alone":              {`{"metadata":{}}`, kube.Allow{}, kube.Blocks},
		"alone, allowed":     {`{"metadata":{}}`, kube.Allow{Unmanaged: true}, kube.Evict},
		"alone and finished": {`{"metadata":{},"status":{"phase":"Succeeded"}}`, kube.Allow{}, kube.Evict},
		"failed, with data": {`{"metadata":{` + owned + `},` + empty + `,"status":{"phase":"Failed"}}`, kube.Allow{},
			kube.Evict},
		"with data":                {`{"metadata":{` + owned + `},` + empty + `}`, kube.Allow{}, kube.Blocks},
		"with data, others go":     {`{"metadata":{` + owned + `},` + empty + `}`, kube.Allow{Unmanaged: true}, kube.Blocks},
		"with data, allowed":       {`{"metadata":{` + owned + `},` + empty + `}`, kube.Allow{LocalData: true}, kube.Evict},
		"owned, but not by reason": {`{"metadata":{"ownerReferences":[{"kind":"ReplicaSet"}]}}`, kube.Allow{}, kube.Blocks},
	} {
		got, why := kube.FateOf(pod(t, c.text), c.allow)
		if got != c.want || (got == kube.Blocks) != (why != "") {
			t.Errorf("%s: %v %q, want %v", name, got, why, c.want)
		}
	}
}

func client(t *testing.T, h http.HandlerFunc) *kube.Client {
	t.Helper()
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	c, err := kube.New(kube.Config{
		Server: srv.URL, Token: "s3cret",
		CAPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestAnswersThatAreNone: servers that are broken, proxies that answer in a cluster's place, and redirects.
func TestAnswersThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		h      http.HandlerFunc
		reason string
	}{
		"not JSON": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
			"CLUSTER_UNREACHABLE"},
		"500": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oops", http.StatusInternalServerError) },
			"CLUSTER_UNREACHABLE"},
		"too busy": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "later", http.StatusTooManyRequests) },
			"CLUSTER_UNREACHABLE"},
		"redirected": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.invalid/", http.StatusFound)
		}, "CLUSTER_UNREACHABLE"},
		"401": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who?", http.StatusUnauthorized) },
			"CLUSTER_ACCESS_DENIED"},
		"cut off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "CLUSTER_UNREACHABLE"},
	} {
		_, err := client(t, c.h).Node(t.Context(), "n-1")
		if failure.ReasonOf(err) != c.reason || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
		if failure.Retryable(err) != (c.reason == "CLUSTER_UNREACHABLE") {
			t.Errorf("%s: retryable %v", name, failure.Retryable(err))
		}
	}
}

// TestABudgetIsNoError: a request to wait is distinguished from a server that is too busy.
func TestABudgetIsNoError(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cret" ||
			!strings.HasSuffix(r.URL.Path, "/api/v1/namespaces/ns/pods/p/eviction") {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(
			[]byte(
				`{"code":429,"message":"Cannot evict","details":{"causes":[{"message":"budget b needs 1 healthy pods and has 1"}]}}`,
			))
	})
	p := &kube.Pod{}
	p.Metadata.Namespace, p.Metadata.Name = "ns", "p"
	got, err := c.EvictPod(t.Context(), p)
	if err != nil || got.Accepted || got.RetryAfter != 7*time.Second || !strings.Contains(got.Blocked, "budget b") {
		t.Errorf("%+v %v", got, err)
	}
}

// TestPagesOfPods: a list that expires between two pages is read again from its beginning.
func TestPagesOfPods(t *testing.T) {
	calls := 0
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		switch {
		case r.URL.Query().Get("continue") == "":
			_, _ = w.Write([]byte(`{"metadata":{"continue":"more"},"items":[{"metadata":{"name":"a"}}]}`))
		case calls == 2:
			http.Error(w, `{"code":410}`, http.StatusGone)
		default:
			_, _ = w.Write([]byte(`{"metadata":{},"items":[{"metadata":{"name":"b"}}]}`))
		}
	})
	pods, err := c.Pods(t.Context(), "n-1")
	if err != nil || len(pods) != 2 || calls != 4 {
		t.Errorf("%d pods by %d calls: %v", len(pods), calls, err)
	}
}

// TestConfigurations that cannot be spoken with.
func TestConfigurations(t *testing.T) {
	good := kube.Config{Server: "https://h:1", CAPEM: []byte("x")}
	for name, cfg := range map[string]kube.Config{
		"plain http": {Server: "http://h:1"}, "no server": {}, "no CA": {Server: good.Server}, "CA that is none": good,
	} {
		if _, err := kube.New(cfg); failure.ReasonOf(err) != "INVALID_FIELD" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
