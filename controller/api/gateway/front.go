package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"github.com/ingot-metal/ingot/api/openapi"
	"github.com/ingot-metal/ingot/internal/failure"
)

// The reasons that only HTTP needs.
const (
	reasonRouteNotFound    = "ROUTE_NOT_FOUND"
	reasonMethodNotAllowed = "METHOD_NOT_ALLOWED"
	reasonMediaType        = "MEDIA_TYPE_UNSUPPORTED"
	reasonTooLarge         = "MESSAGE_TOO_LARGE"
	reasonInvalidField     = "INVALID_FIELD"
	reasonOverloaded       = "CONTROLLER_OVERLOADED"
)

// ServeHTTP checks what HTTP adds to a call, then makes the call.
func (g *Gateway) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &writer{ResponseWriter: rw, patience: g.cfg.WriteTimeout}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if g.cfg.Requested != nil {
		g.cfg.Requested(r.Context())
	}
	methods, last := g.routes.find(r.URL.EscapedPath())
	op, known := methods.of(r.Method)
	switch {
	case methods == nil:
		g.refuse(w, http.StatusNotFound, failure.NotFound(reasonRouteNotFound, "there is nothing at %s; see %s", r.URL.Path,
			DocumentPath))
	case r.Method == http.MethodOptions:
		h.Set("Allow", methods.allowed())
		if _, ok := methods[http.MethodPatch]; ok {
			h.Set("Accept-Patch", patchType+", "+jsonType)
		}
		w.WriteHeader(http.StatusNoContent)
	case !known:
		h.Set("Allow", methods.allowed())
		g.refuse(w, http.StatusMethodNotAllowed, failure.Unimplemented(reasonMethodNotAllowed, "%s takes %s, not %s",
			r.URL.Path, methods.allowed(), r.Method))
	default:
		if op.serve == nil {
			op.serve = g.call
		}
		if isRead(r) {
			get := r.Clone(r.Context())
			get.Method = http.MethodGet // net/http leaves out the body of what came as HEAD
			op.serve(&conditional{w, r.Header.Values("If-None-Match")}, get, op, last)
			return
		}
		op.serve(w, r, op, last)
	}
}

func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// call makes the call of a route.
func (g *Gateway) call(w http.ResponseWriter, r *http.Request, op operation, _ string) {
	release, code, err := g.prepare(w, r, op)
	if err != nil {
		g.refuse(w, code, err)
		return
	}
	defer release()
	r, err = withPreconditions(r)
	if err == nil && r.Method == http.MethodPatch {
		err = mergePatch(r, op)
	}
	if err != nil {
		g.refuse(w, http.StatusBadRequest, err)
		return
	}
	g.mux.ServeHTTP(w, r)
}

func (g *Gateway) document(w http.ResponseWriter, _ *http.Request, _ operation, _ string) {
	w.Header().Set("Content-Type", jsonType)
	g.write(w, openapi.Document)
}

// prepare checks query and body, and leaves them in r as the generated handlers want them: the query as the form, the
// body in memory. Nothing is read of the body before the token is known. release releases the room of the body.
func (g *Gateway) prepare(
	w http.ResponseWriter, r *http.Request, op operation,
) (release func(), code int, refusal *failure.Error) {
	release = func() {}
	query, code, refusal := g.known(w, r, op)
	if refusal != nil {
		return nil, code, refusal
	}
	r.Form, r.PostForm = query, url.Values{}
	if r.ContentLength == 0 {
		r.Body = http.NoBody
		return release, 0, nil
	}
	if !op.body {
		return nil, http.StatusBadRequest, failure.Invalid(reasonInvalidField, "%s takes no body here", r.Method)
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != jsonType && (kind != patchType || r.Method != http.MethodPatch) {
		return nil, http.StatusUnsupportedMediaType, failure.Invalid(reasonMediaType, "send the body as Content-Type: %s",
			jsonType)
	}
	release, refusal = g.bodyRoom(r.ContentLength)
	if refusal != nil {
		return nil, http.StatusTooManyRequests, refusal
	}
	if code, refusal = g.readBody(w, r); refusal != nil {
		release()
		return nil, code, refusal
	}
	return release, 0, nil
}

// known checks the query of a request, and that its token is known. Nothing is read of the body.
func (g *Gateway) known(w http.ResponseWriter, r *http.Request, op operation) (url.Values, int, *failure.Error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, http.StatusBadRequest, failure.Invalid(reasonInvalidField, "the query cannot be read: %v", err)
	}
	if err := op.checkQuery(query); err != nil {
		return nil, http.StatusBadRequest, err
	}
	if g.cfg.PreAuthorize != nil {
		if err := g.cfg.PreAuthorize(r.Context(), op.call, r.Header.Values("Authorization")); err != nil {
			if r.ProtoMajor == 1 {
				w.Header().Set("Connection", "close") // whatever follows is not read
			}
			e := failure.From(err)
			return nil, runtime.HTTPStatusFromCode(failure.ToStatus(e).Code()), e
		}
	}
	return query, 0, nil
}

// bodyRoom takes room for a body of a length in bytes; -1 is one that is not known. Known clients share that room.
func (g *Gateway) bodyRoom(length int64) (release func(), refusal *failure.Error) {
	size := length
	if size < 0 || size > g.cfg.MaxBody {
		size = g.cfg.MaxBody
	}
	if g.bodies.Add(size) > g.cfg.BodyBytes && size < g.cfg.BodyBytes {
		g.bodies.Add(-size)
		return nil,
			failure.Exhausted(reasonOverloaded, "the bodies of other requests take all room that there is for them").WithRetry(
				time.Second)
	}
	return func() { g.bodies.Add(-size) }, nil
}

func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) (int, *failure.Error) {
	rc := http.NewResponseController(w)
	// Where a deadline cannot be set, as in tests without a connection, no client can be slow.
	_ = rc.SetReadDeadline(time.Now().Add(g.cfg.BodyTimeout))
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, g.cfg.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge, failure.Invalid(reasonTooLarge, "the body is larger than %d bytes",
			large.Limit)
	case err != nil:
		return http.StatusBadRequest, failure.Invalid(reasonInvalidField, "the body ended early")
	}
	// A call may take longer than its body, and a deadline that passes would end it.
	_ = rc.SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(bytes.NewReader(raw))
	return 0, nil
}

// agreeingPath refuses a body that names another thing than the path does: either may be meant.
func (g *Gateway) agreeingPath(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, inPath map[string]string) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			g.refuse(w, http.StatusBadRequest, failure.Invalid(reasonInvalidField, "the body ended early"))
			return
		}
		if err := disagreement(raw, inPath); err != nil {
			g.refuse(w, http.StatusBadRequest, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(raw))
		next(w, r, inPath)
	}
}

func disagreement(body []byte, inPath map[string]string) *failure.Error {
	if len(body) == 0 || len(inPath) == 0 {
		return nil
	}
	for path, want := range inPath {
		words := strings.Split(path, ".")
		name := words[len(words)-1]
		// The body is the whole request, or the field of it that the path's name begins with.
		for _, at := range [][]string{words, {name}} {
			if got := textAt(body, at); got != "" && got != want {
				return failure.Invalid(reasonInvalidField, "%s is %q in the path and %q in the body", name, want, got).
					WithField(strings.Join(at, "."), "is not what the path says")
			}
		}
	}
	return nil
}

// textAt returns the string at a path of names. The decoder refuses other values.
func textAt(raw json.RawMessage, path []string) (text string) {
	if len(path) == 0 {
		if json.Unmarshal(raw, &text) != nil {
			return ""
		}
		return text
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return ""
	}
	for key, inner := range object {
		if sameName(key, path[0]) {
			return textAt(inner, path[1:])
		}
	}
	return ""
}

// sameName compares machine_id with machine_id and machineId, the two spellings that a body may have.
func sameName(key, name string) bool {
	return strings.EqualFold(strings.ReplaceAll(key, "_", ""), strings.ReplaceAll(name, "_", ""))
}
