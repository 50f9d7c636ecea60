package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/client"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Engine says how a Docker Engine is reached. The zero value is the one of this
// machine. Whoever reaches an Engine is root where it runs, so its address is the
// operator's to choose, never a client's, and over a network both sides prove who
// they are.
type Engine struct {
	Host          string // unix:///PATH or tcp://HOST:PORT; DefaultEngine when empty
	CA, Cert, Key string // PEM files: whom to believe, and who the daemon is; for tcp
}

// DefaultEngine is where a Docker Engine listens on its own machine.
const DefaultEngine = "unix:///var/run/docker.sock"

// Validate tells what is wrong with an address.
func (e Engine) Validate() error {
	wrong := func(subject, format string, args ...any) error {
		return sandbox.Errorf(sandbox.KindInvalid, "configure Docker Engine", subject, format, args...)
	}
	host := cmp.Or(e.Host, DefaultEngine)
	u, err := url.Parse(host)
	if err != nil {
		return wrong("host", "%w", err)
	}
	switch {
	case u.Scheme == "unix" && (!filepath.IsAbs(u.Path) || u.Host != ""):
		return wrong("host", "%q: the path of the socket is not absolute", host)
	case u.Scheme == "unix" && e.CA+e.Cert+e.Key != "":
		return wrong("tls_ca, tls_cert, tls_key", "%q is a socket of this machine, which takes none", host)
	case u.Scheme == "tcp" && (u.Port() == "" || u.Hostname() == "" || u.Path != ""):
		return wrong("host", "%q: tcp://HOST:PORT is needed", host)
	case u.Scheme == "tcp" && (e.CA == "" || e.Cert == "" || e.Key == ""):
		return wrong("tls_ca, tls_cert, tls_key", "%q is reached over a network, which takes all three", host)
	case u.Scheme != "unix" && u.Scheme != "tcp":
		return wrong("host", "%q: unix:///PATH or tcp://HOST:PORT is needed", host)
	}
	return nil
}

// Connect makes a client, which connects when it is used. It speaks the newest
// API that the Engine has. The caller closes it.
func (e Engine) Connect() (*client.Client, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	options := []client.Opt{client.WithHost(cmp.Or(e.Host, DefaultEngine)), client.WithAPIVersionNegotiation()}
	if e.CA != "" {
		options = append(options, client.WithTLSClientConfig(e.CA, e.Cert, e.Key))
	}
	api, err := client.NewClientWithOpts(options...)
	if err != nil {
		return nil, &sandbox.Error{
			Kind: sandbox.KindUnavailable, Op: "connect to Docker Engine", Err: err,
			Mend: "see that tls_ca, tls_cert and tls_key in [images.docker] are files that the daemon can read",
		}
	}
	return api, nil
}

// Failure gives what an Engine said, or failed to say, its kind.
func (e Engine) Failure(ctx context.Context, op, subject string, err error) error {
	if _, ok := errors.AsType[*sandbox.Error](err); ok || err == nil {
		return err
	}
	// What an Engine says ends up on terminals.
	out := &sandbox.Error{Kind: sandbox.KindUnavailable, Op: op, Subject: printable(subject), Err: errors.New(printable(err.Error()))}
	_, network := errors.AsType[net.Error](err)
	switch {
	case ctx.Err() != nil:
		out.Kind, out.Err = sandbox.KindCanceled, context.Cause(ctx)
	case errdefs.IsNotFound(err):
		out.Kind = sandbox.KindNotFound
	case errdefs.IsInvalidArgument(err):
		out.Kind = sandbox.KindInvalid
	case errdefs.IsConflict(err):
		out.Kind = sandbox.KindConflict
	case network, client.IsErrConnectionFailed(err), errors.Is(err, os.ErrPermission):
		out.Subject = "Docker Engine"
		out.Mend = fmt.Sprintf("start the Docker Engine (systemctl start docker), or say in [images.docker] host where it is; it was looked for at %s",
			cmp.Or(e.Host, DefaultEngine))
	}
	return out
}

// CheckReference refuses what no image of an Engine can be called: the client puts
// it into the path of a request as it is.
func CheckReference(subject, name string) error {
	const longest = 512
	if len(name) > longest {
		return sandbox.Errorf(sandbox.KindInvalid, "find image", subject, "longer than %d bytes", longest)
	}
	if _, err := reference.ParseAnyReference(name); err != nil {
		return sandbox.Errorf(sandbox.KindInvalid, "find image", subject, "%q: %w", printable(name), err)
	}
	return nil
}

// imageID is how Engines name images by their content.
var imageID = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// IsImageID tells whether an image is named by its content.
func IsImageID(name string) bool { return imageID.MatchString(name) }

// askFor bounds a call of an Engine that makes nothing.
const askFor = 30 * time.Second

// Found is an image of an Engine.
type Found struct {
	ID       string
	Bytes    int64 // of its layers, roughly
	Named    bool  // whether the Engine has a name for it
	Triggers int   // what it has Engines do when something is built on it
}

// Find looks an image up.
func (e Engine) Find(ctx context.Context, api *client.Client, name string) (Found, error) {
	const op = "find image"
	if err := CheckReference("reference", name); err != nil {
		return Found{}, err
	}
	asked, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	answer, err := api.ImageInspect(asked, name)
	if errdefs.IsNotFound(err) {
		return Found{}, &sandbox.Error{
			Kind: sandbox.KindNotFound, Op: op, Subject: name, Err: errors.New("the Docker Engine has no such image"),
			Mend: "docker images lists those it has; docker pull fetches one",
		}
	}
	if err != nil {
		return Found{}, e.Failure(ctx, op, name, err)
	}
	if !IsImageID(answer.ID) {
		return Found{}, sandbox.Errorf(sandbox.KindUnavailable, op, name, "the Docker Engine calls it %q, which is no digest", printable(answer.ID))
	}
	found := Found{ID: answer.ID, Bytes: max(0, answer.Size), Named: len(answer.RepoTags)+len(answer.RepoDigests) > 0}
	if answer.Config != nil {
		found.Triggers = len(answer.Config.OnBuild)
	}
	return found, nil
}

// Saved is an image on its way out of an Engine.
type Saved struct {
	io.Reader
	Found
	close func() error
}

// Close ends the stream, wherever it is.
func (s *Saved) Close() error { return s.close() }

// Save finds an image and streams the archive of just this one, whatever its name
// means later. What the archive says of itself is to be held against the ID.
func (e Engine) Save(ctx context.Context, name string) (_ *Saved, err error) {
	api, err := e.Connect()
	if err != nil {
		return nil, err
	}
	found, err := e.Find(ctx, api, name)
	if err != nil {
		return nil, errors.Join(err, api.Close())
	}
	body, err := api.ImageSave(ctx, []string{found.ID})
	if err != nil {
		return nil, errors.Join(e.Failure(ctx, "export image", name, err), api.Close())
	}
	r := failing{sandbox.KindUnavailable, "Docker Engine", body}
	return &Saved{Reader: r, Found: found, close: func() error { return errors.Join(body.Close(), api.Close()) }}, nil
}
