package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/semaphore"

	"github.com/sandboxd/sandboxd/daemon/catalog"
	"github.com/sandboxd/sandboxd/daemon/runs"
	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/sandbox"
)

// DescribedVersion is the version that the generated description carries: that
// of the interface, which changes less often than the daemon.
const DescribedVersion = "v1"

// Config is what the API tells and obeys.
type Config struct {
	Version  string
	Defaults sandbox.Limits
	Ceilings sandbox.Limits
	Logger   *slog.Logger
	// PeerCred reads a connection's peer credentials. A connection without any
	// is refused.
	PeerCred func(net.Conn) (tenants.Caller, error)
}

// API serves the daemon's HTTP interface.
type API struct {
	cfg     Config
	runs    *runs.Manager
	images  *catalog.Catalog
	started time.Time
	bodies  *semaphore.Weighted // bytes of request bodies in memory
	huma    huma.API
	handler http.Handler
}

// New builds the API over a manager of runs and a catalog of images.
func New(cfg Config, manager *runs.Manager, images *catalog.Catalog) (*API, error) {
	if cfg.Logger == nil || cfg.PeerCred == nil {
		return nil, errors.New("configure API: logger and peer credentials are required")
	}
	adoptHuma()
	a := &API{cfg: cfg, runs: manager, images: images, started: time.Now(), bodies: semaphore.NewWeighted(maxBodies)}
	metrics, err := metricsHandler(manager)
	if err != nil {
		return nil, fmt.Errorf("configure API: %w", err)
	}
	mux := http.NewServeMux()
	a.huma = humago.New(mux, humaConfig())
	a.routes()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("/", a.unknown)
	a.handler = a.guard(a.readBody(mux))
	return a, nil
}

func humaConfig() huma.Config {
	c := huma.DefaultConfig("sandboxd", DescribedVersion)
	c.Info.Description = "Runs untrusted Python in hardened single-use sandboxes. Served over a Unix socket; the caller is who the socket's peer credentials say."
	c.CreateHooks = nil // no $schema fields in answers
	c.RejectUnknownQueryParameters = true
	c.DocsPath, c.SchemasPath = "", ""
	return c
}

// OpenAPI gives the description of the API as YAML.
func (a *API) OpenAPI() ([]byte, error) { return a.huma.OpenAPI().YAML() }

// Server makes the HTTP server. There is no write timeout for the whole of a
// request: a run may take as long as its limits say. The time to take an
// answer in is bounded by guard.
func (a *API) Server() *http.Server {
	return &http.Server{
		Handler:           a.handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(a.cfg.Logger.Handler(), slog.LevelDebug),
		ConnContext:       a.identify,
	}
}

// identify reads who is at the other end, once for a connection.
func (a *API) identify(ctx context.Context, c net.Conn) context.Context {
	caller, err := a.cfg.PeerCred(c)
	if err != nil {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "connection refused", slog.Any("err", err))
		_ = c.Close()
		return ctx
	}
	return tenants.With(ctx, caller)
}

// answerTime is how long a client may take to receive an answer.
const answerTime = time.Minute

// guard refuses requests without a caller and bounds the sending of answers.
func (a *API) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := tenants.From(r.Context()); !ok {
			a.refuse(w, r, sandbox.Errorf(sandbox.KindDenied, "identify", "", "no peer credentials"))
			return
		}
		next.ServeHTTP(&timedWriter{ResponseWriter: w}, r)
	})
}

// timedWriter starts the clock of an answer with its first byte.
type timedWriter struct {
	http.ResponseWriter
}

func (w *timedWriter) WriteHeader(status int) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTime))
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap serves http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// refuse answers with a problem outside of huma.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	err = problem(r.Context(), a.cfg.Logger, err)
	if headers, ok := errors.AsType[huma.HeadersError](err); ok {
		maps.Copy(w.Header(), headers.GetHeaders())
	}
	var p *Problem
	if !errors.As(err, &p) {
		p = fromSchema(http.StatusInternalServerError, "the daemon failed", nil)
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may have left
}

// unknown answers for every path and method that is not routed.
func (a *API) unknown(w http.ResponseWriter, r *http.Request) {
	a.refuse(w, r, sandbox.Errorf(sandbox.KindNotFound, "route", "", "there is no %s %s", clip(r.Method, maxEcho), clip(r.URL.Path, maxEcho)))
}
