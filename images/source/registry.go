package source

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Registry says how registries are spoken to.
type Registry struct {
	// Transport is http.DefaultTransport where nil.
	Transport http.RoundTripper
	// Auth is nobody where nil. The daemon's own key chain is not asked: its
	// secrets are not its callers'.
	Auth authn.Authenticator
	// Insecure are the registries, as HOST or HOST:PORT, that may be spoken to by
	// HTTP. Those on this machine and in private networks may be as well: so the
	// library has it.
	Insecure []string
}

// Pull finds an image in a registry. Layers are fetched when they are read; the
// context must live as long.
func (r Registry) Pull(ctx context.Context, reference string, o Options) (*Image, error) {
	ref, err := r.parse(reference)
	if err != nil {
		return nil, invalid(reference, "%w", err)
	}
	found, err := remote.Image(ref, r.options(ctx, o)...)
	if err != nil {
		return nil, remoteError(ref, err)
	}
	digest, err := found.Digest()
	if err != nil {
		return nil, remoteError(ref, err)
	}
	layers, err := remoteLayers(found, o)
	if err != nil {
		return nil, remoteError(ref, err)
	}
	origin := "registry " + ref.Context().Digest(digest.String()).Name()
	return &Image{Origin: origin, Layers: layers, Layered: true, close: func() error { return nil }}, nil
}

func (r Registry) parse(reference string) (name.Reference, error) {
	ref, err := name.ParseReference(reference)
	if err != nil || !slices.Contains(r.Insecure, ref.Context().RegistryStr()) {
		return ref, err
	}
	return name.ParseReference(reference, name.Insecure)
}

func (r Registry) options(ctx context.Context, o Options) []remote.Option {
	options := []remote.Option{remote.WithContext(ctx), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: o.Arch})}
	if r.Transport != nil {
		options = append(options, remote.WithTransport(r.Transport))
	}
	if r.Auth != nil {
		options = append(options, remote.WithAuth(r.Auth))
	}
	return options
}

func remoteLayers(img v1.Image, o Options) ([]Layer, error) {
	manifest, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	if err := checkManifest(manifest, o); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	found, err := img.Layers()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(found))
	for i, l := range found {
		digest, err := l.Digest()
		if err != nil {
			return nil, err
		}
		names[i] = "layer " + digest.String()
	}
	layers, err := layersOf(config, names, o)
	if err != nil {
		return nil, err
	}
	for i, l := range found {
		if layers[i].Bytes, err = l.Size(); err != nil {
			return nil, err
		}
		layers[i].open = func(context.Context) (io.ReadCloser, error) {
			r, err := l.Compressed()
			if err != nil {
				return nil, &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "pull image", Subject: names[i], Err: err}
			}
			return struct {
				io.Reader
				io.Closer
			}{failing{sandbox.KindUnavailable, names[i], r}, r}, nil
		}
	}
	return layers, nil
}

// checkManifest refuses what would be fetched without a bound or from elsewhere.
// The library takes a size of -1 for one that is not known.
func checkManifest(m *v1.Manifest, o Options) error {
	if m.Config.Size < 0 || m.Config.Size > maxDocument { // it is read into memory whole
		return invalid("configuration", "%d bytes are not between 0 and %d", m.Config.Size, maxDocument)
	}
	left := o.Bytes
	for _, l := range m.Layers {
		name := "layer " + l.Digest.String()
		if len(l.URLs) > 0 { // the daemon reaches what whoever made the image may not
			return invalid(name, "it is to be fetched from elsewhere; push the image with all its layers")
		}
		if l.Size < 0 || l.Size > left {
			return invalid(name, "%d bytes; layers may have %d together", l.Size, o.Bytes)
		}
		left -= l.Size
	}
	return nil
}

// remoteError says whose fault it is: the reference's, the registry's or the
// image's.
func remoteError(ref name.Reference, err error) error {
	if _, ok := errors.AsType[*sandbox.Error](err); ok {
		return err
	}
	kind := sandbox.KindUnavailable
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		switch answer.StatusCode {
		case http.StatusNotFound:
			kind = sandbox.KindNotFound
		case http.StatusUnauthorized, http.StatusForbidden:
			kind = sandbox.KindDenied
		}
	}
	return &sandbox.Error{Kind: kind, Op: "pull image", Subject: ref.Name(), Err: errors.New(printable(err.Error()))}
}
