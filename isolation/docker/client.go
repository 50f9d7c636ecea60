package docker

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"

	"github.com/sandboxd/sandboxd/sandbox"
)

// leastAPI is that of Engine 20.10, the first with cgroup namespaces.
const leastAPI = "1.41"

// callTimeout bounds a call of the Engine that makes nothing.
const callTimeout = 20 * time.Second

// connect makes a client; it connects with the first call.
func connect(host string, t TLS) (*client.Client, error) {
	host = cmp.Or(host, DefaultHost)
	u, err := url.Parse(host)
	if err != nil {
		return nil, err
	}
	network, address := "unix", u.Path
	var secure *tls.Config
	if u.Scheme == "tcp" {
		network, address = "tcp", u.Host
		if secure, err = t.config(u.Hostname()); err != nil {
			return nil, err
		}
	}
	d := dialer{network: network, address: address, secure: secure}
	// The scheme is what the client writes into requests. Encryption is the
	// dialer's, in one place for requests and for streams.
	return client.NewClientWithOpts(
		client.WithHost(host), client.WithScheme("http"), client.WithDialContext(d.dial), client.WithAPIVersionNegotiation())
}

func (t TLS) config(serverName string) (*tls.Config, error) {
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("tls_ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls_ca: no certificate in %s", t.CA)
	}
	own, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("tls_cert, tls_key: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{own}, ServerName: serverName}, nil
}

// dialer makes connections to one Engine.
type dialer struct {
	network, address string
	secure           *tls.Config
}

// boundedKey marks a context whose deadline is the connection's too: the client
// waits for the answer to an attachment without one.
type boundedKey struct{}

func bounded(ctx context.Context) context.Context { return context.WithValue(ctx, boundedKey{}, true) }

func (d dialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	nd := net.Dialer{Timeout: callTimeout, KeepAlive: 15 * time.Second}
	conn, err := nd.DialContext(ctx, d.network, d.address)
	if err != nil {
		return nil, err
	}
	if d.secure != nil {
		secured := tls.Client(conn, d.secure)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		conn = secured
	}
	if deadline, ok := ctx.Deadline(); ok && ctx.Value(boundedKey{}) != nil {
		return conn, conn.SetDeadline(deadline)
	}
	return conn, nil
}

// lock is one that is waited for with the caller's patience: an Engine may hang while
// somebody holds it.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) take(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.KindUnavailable, "wait for Docker Engine", "", "%w", context.Cause(ctx))
	}
}

func (l lock) give() { <-l }

// engineError gives what the Engine said, or failed to say, its kind.
func (e *Engine) engineError(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*sandbox.Error](err); ok {
		return err
	}
	out := &sandbox.Error{Kind: sandbox.KindInternal, Op: op, Subject: "Docker Engine", Err: err}
	late, lost := isLate(err), isLost(err)
	if late || lost {
		out.Kind = sandbox.KindUnavailable
		out.Mend = "see that it runs at " + cmp.Or(e.cfg.Host, DefaultHost) + " and that the daemon may use it"
	}
	if lost && !late { // one that has much to do is still there
		e.lost()
	}
	return out
}

// isLate tells whether the Engine was not waited for any longer.
func isLate(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// isLost tells whether the Engine could not be reached, or hung up in the middle.
func isLost(err error) bool {
	if client.IsErrConnectionFailed(err) || errors.Is(err, net.ErrClosed) || errors.Is(err, errStreamEnded) {
		return true
	}
	_, ok := errors.AsType[net.Error](err)
	return ok || isEOF(err)
}

// checkVersion refuses an Engine that is too old.
func (e *Engine) checkVersion(ctx context.Context) (string, error) {
	v, err := e.api.ServerVersion(ctx)
	if err != nil {
		return "", e.engineError("ask for version", err)
	}
	if versions.LessThan(v.APIVersion, leastAPI) {
		return "", &sandbox.Error{
			Kind: sandbox.KindUnavailable, Op: "find Docker Engine", Subject: v.Version,
			Err: fmt.Errorf("its API %s is older than %s", v.APIVersion, leastAPI), Mend: "install Docker Engine 20.10 or newer",
		}
	}
	if v.Os != "linux" {
		return "", sandbox.Errorf(sandbox.KindUnavailable, "find Docker Engine", v.Version, "it runs on %s, and not on Linux", v.Os)
	}
	return v.Version, nil
}
