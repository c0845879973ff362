package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"baton/internal/api"
)

// ServeHTTP implements http.Handler. It is the one way in: identification, origin, key and
// state are checked here, before any route is looked up, so that a new route is guarded
// without having to remember it.
func (s *Server) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	start := time.Now()
	w := &response{ResponseWriter: rw, rc: http.NewResponseController(rw), timeout: s.cfg.WriteTimeout}
	_ = w.rc.SetWriteDeadline(time.Time{}) // the connection's last request may have left one
	id := requestID(r)
	w.Header().Set("X-Request-Id", id)
	r = r.WithContext(context.WithValue(r.Context(), idKey{}, id))

	route := "other"
	defer func() {
		aborted := s.recoverPanic(w, r, recover())
		w.extend() // for what net/http still has to flush
		s.metrics.request(route, w.status, time.Since(start))
		s.cfg.Logger.Debug("request", "id", id, "method", r.Method, "route", route, "status", w.status,
			"bytes", w.written, "ms", time.Since(start).Milliseconds())
		if aborted {
			panic(http.ErrAbortHandler) // net/http closes the connection, quietly
		}
	}()

	if err := s.checkOrigin(w, r); err != nil {
		s.fail(w, err)
		return
	}
	if r.Method == http.MethodOptions {
		preflight(w, r)
		return
	}
	if err := s.checkKey(r); err != nil {
		w.Header().Set("WWW-Authenticate", `Bearer realm="baton"`)
		s.fail(w, err)
		return
	}
	var err *api.Error
	if route, err = s.lookup(w, r); err != nil {
		s.fail(w, err)
		return
	}
	s.mux.ServeHTTP(w, r)
}

type idKey struct{}

// requestID takes the client's X-Request-Id, if it is harmless, or makes one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if id == "" || len(id) > 64 || strings.IndexFunc(id, notIDRune) >= 0 {
		return "req-" + randomHex(12)
	}
	return id
}

func notIDRune(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.')
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails, says its documentation
	return hex.EncodeToString(b)
}

// recoverPanic turns a handler's panic into a 500 where that is still possible. It reports
// whether the connection must be closed because the answer is cut short.
func (s *Server) recoverPanic(w *response, r *http.Request, v any) (abort bool) {
	if v == nil {
		return false
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return true
	}
	s.metrics.panics.Inc()
	s.cfg.Logger.Error("panic in a request", "id", r.Context().Value(idKey{}), "path", r.URL.Path, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	if w.status != 0 {
		return true
	}
	s.fail(w, internalError())
	return false
}

func internalError() *api.Error {
	return &api.Error{Status: http.StatusInternalServerError, Type: api.TypeServer, Code: "internal",
		Message: "internal error: the server's log says more, under this response's X-Request-Id"}
}

// isOpen lists the paths that need no key.
func isOpen(path string) bool { return path == "/health" || path == "/v1/health" }

// checkKey wants one of the keys, if there are any. The comparison takes the same time
// whichever key is given.
func (s *Server) checkKey(r *http.Request) *api.Error {
	if len(s.keys) == 0 || isOpen(r.URL.Path) {
		return nil
	}
	key := r.Header.Get("X-Api-Key")
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		key = strings.TrimSpace(token)
	}
	sum := sha256.Sum256([]byte(key))
	match := 0
	for i := range s.keys {
		match |= subtle.ConstantTimeCompare(sum[:], s.keys[i][:])
	}
	if match == 1 && key != "" {
		return nil
	}
	message := "invalid API key"
	if key == "" {
		message = "found no API key, expected one as `Authorization: Bearer KEY` or `X-Api-Key: KEY`"
	}
	return &api.Error{Status: http.StatusUnauthorized, Type: api.TypeAuthentication, Code: "invalid_api_key", Message: message}
}

// checkOrigin answers a browser's question whether the page's origin may use the server.
// Without keys it also protects the user of a browser on this machine: a page from
// elsewhere could otherwise send requests to the loopback address.
func (s *Server) checkOrigin(w http.ResponseWriter, r *http.Request) *api.Error {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	w.Header().Add("Vary", "Origin")
	if s.originAllowed(origin) {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
		return nil
	}
	return &api.Error{Status: http.StatusForbidden, Type: api.TypePermission, Code: "origin_not_allowed",
		Message: fmt.Sprintf("web pages from %q may not use this server: allow their origin, or set an API key", clip(origin))}
}

func (s *Server) originAllowed(origin string) bool {
	if len(s.cfg.AllowOrigins) > 0 {
		return slices.Contains(s.cfg.AllowOrigins, "*") || slices.Contains(s.cfg.AllowOrigins, origin)
	}
	if len(s.keys) > 0 {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && IsLoopback(u.Hostname())
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}

// preflight answers OPTIONS. Browsers send no key with it.
func preflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Allow", "GET, HEAD, POST, OPTIONS")
	if r.Header.Get("Origin") != "" {
		h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS")
		if want := r.Header.Get("Access-Control-Request-Headers"); want != "" {
			h.Set("Access-Control-Allow-Headers", want)
		}
		h.Set("Access-Control-Max-Age", "600")
	}
	w.WriteHeader(http.StatusNoContent)
}

// IsLoopback reports whether host, a name or an address without a port, means this machine
// only.
func IsLoopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// CheckExposure refuses to listen beyond this machine without a key.
func CheckExposure(host string, keys []string) error {
	if len(keys) > 0 || IsLoopback(host) {
		return nil
	}
	return fmt.Errorf("server: listening on %q would open the model to the network without a key: give an API key file, or listen on 127.0.0.1", host)
}

// ReadKeys reads API keys, one a line; empty lines and those starting with # do not count.
func ReadKeys(r io.Reader) ([]string, error) {
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("server: API keys: %w", err)
	}
	var keys []string
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.IndexFunc(line, func(c rune) bool { return c <= ' ' || c > '~' }) >= 0 {
			return nil, fmt.Errorf("server: API keys: line %d: found a space or a character outside ASCII, expected a key", i+1)
		}
		keys = append(keys, line)
	}
	if len(keys) == 0 {
		return nil, errors.New("server: API keys: found none, expected at least one line")
	}
	return keys, nil
}

// readBody reads a request's JSON, within the limits of size and time.
func (s *Server) readBody(w *response, r *http.Request) ([]byte, *api.Error) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, &api.Error{Status: http.StatusUnsupportedMediaType, Type: api.TypeInvalidRequest, Code: "unsupported_encoding",
			Message: fmt.Sprintf("body: found the content encoding %q, expected none", clip(enc))}
	}
	tooLarge := &api.Error{Status: http.StatusRequestEntityTooLarge, Type: api.TypeInvalidRequest, Code: "body_too_large",
		Message: "body: found more than " + strconv.FormatInt(s.cfg.MaxBody, 10) + " bytes, expected at most that many"}
	if r.ContentLength > s.cfg.MaxBody {
		w.Header().Set("Connection", "close") // the body stays unread
		tooLarge.Message = fmt.Sprintf("body: found %d bytes, expected at most %d", r.ContentLength, s.cfg.MaxBody)
		return nil, tooLarge
	}
	_ = w.rc.SetReadDeadline(time.Now().Add(s.cfg.BodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w.ResponseWriter, r.Body, s.cfg.MaxBody))
	// From here on net/http reads in the background, to notice that the client leaves;
	// a deadline would look like that.
	_ = w.rc.SetReadDeadline(time.Time{})
	var limit *http.MaxBytesError
	switch {
	case errors.As(err, &limit):
		return nil, tooLarge
	case err != nil:
		w.Header().Set("Connection", "close")
		return nil, &api.Error{Status: http.StatusRequestTimeout, Type: api.TypeInvalidRequest, Code: "body_incomplete",
			Message: fmt.Sprintf("body: found %d bytes, then: %v", len(body), err)}
	}
	return body, nil
}
