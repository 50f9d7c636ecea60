package docker

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/sandbox"
)

// dockerImage is an image of the Engine's.
type dockerImage struct {
	id           string   // what containers are made of: its content's, never a name
	env          []string // that it would give its containers
	interpreter  string
	sitePackages []string
	python       string // version, where it is known
	description  string
	isDefault    bool
}

// image finds an image by the digest of its tree, or the default one by "", and
// gives it to the Engine where that does not have it.
func (e *Engine) image(ctx context.Context, digest string) (*dockerImage, error) {
	if e.cfg.Image != nil && digest == e.cfg.Image.Digest {
		digest = ""
	}
	if known := e.knownImage(digest); known != nil {
		return known, nil
	}
	if err := e.imports.take(ctx); err != nil {
		return nil, err
	}
	defer e.imports.give()
	if known := e.knownImage(digest); known != nil {
		return known, nil
	}
	img, err := e.findImage(ctx, digest)
	if err != nil {
		return nil, err
	}
	img.isDefault = digest == ""
	e.mu.Lock()
	defer e.mu.Unlock()
	e.images[digest] = img
	return img, nil
}

func (e *Engine) knownImage(digest string) *dockerImage {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.images[digest]
}

func (e *Engine) findImage(ctx context.Context, digest string) (*dockerImage, error) {
	switch {
	case digest == "" && e.cfg.DockerImage != "":
		return e.namedImage(ctx, e.cfg.DockerImage)
	case digest == "":
		return e.storedImage(ctx, e.cfg.Image)
	case e.cfg.Images == nil:
		return nil, sandbox.Errorf(sandbox.KindNotFound, "find image", "image "+digest, "engine %s has no image but its default", Name)
	}
	use, err := e.cfg.Images.Acquire(digest)
	if err != nil {
		return nil, err
	}
	defer use.Release() // the Engine has its own copy then
	return e.storedImage(ctx, use.Image)
}

// forget has an image looked for again that somebody has removed, and what was proven
// with it proven anew: by its name, another may be found.
func (e *Engine) forget(img *dockerImage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for digest, known := range e.images {
		if known == img {
			delete(e.images, digest)
		}
	}
	if img.isDefault {
		e.support = nil
	}
}

// interpreters are where Python is in images that nobody describes.
func interpreters() []string { return []string{"/usr/local/bin/python3", "/usr/bin/python3"} }

// namedImage takes an image that the Engine has. It is told from others by its id
// from then on.
func (e *Engine) namedImage(ctx context.Context, reference string) (*dockerImage, error) {
	info, err := e.api.ImageInspect(ctx, reference)
	if cerrdefs.IsNotFound(err) {
		return nil, &sandbox.Error{
			Kind: sandbox.KindUnavailable, Op: "find image", Subject: reference, Err: errors.New("the Docker Engine does not have it"),
			Mend: "docker pull " + reference + ", or set engine.docker.image to one that it has",
		}
	}
	if err != nil {
		return nil, e.engineError("find image", err)
	}
	img := &dockerImage{id: info.ID, description: reference + " " + info.ID}
	if info.Config != nil {
		if len(info.Config.Volumes) > 0 {
			// Each would be a writable place without a cap.
			return nil, &sandbox.Error{
				Kind: sandbox.KindUnavailable, Op: "find image", Subject: reference, Err: errors.New("it declares volumes"),
				Mend: "build it without VOLUME",
			}
		}
		img.env = info.Config.Env
		img.interpreter = info.Config.Labels[interpreterLabel]
	}
	if img.interpreter == "" {
		img.interpreter, err = e.findInterpreter(ctx, img)
	}
	return img, err
}

// interpreterLabel is how an image may say where its Python is.
const interpreterLabel = "io.sandboxd.interpreter"

// findInterpreter tries the usual places, by booting a supervisor.
func (e *Engine) findInterpreter(ctx context.Context, img *dockerImage) (string, error) {
	var errs []error
	for _, candidate := range interpreters() {
		tried := *img
		tried.interpreter = candidate
		s, err := e.make(ctx, &tried, sandbox.DefaultLimits())
		if err == nil {
			return candidate, s.Destroy(ctx)
		}
		if sandbox.KindOf(err) == sandbox.KindUnavailable {
			return "", err
		}
		errs = append(errs, err)
	}
	return "", &sandbox.Error{
		Kind: sandbox.KindUnavailable, Op: "find image", Subject: img.description,
		Err:  fmt.Errorf("no Python starts at %s: %w", strings.Join(interpreters(), " or "), errors.Join(errs...)),
		Mend: "say where it is with a label: LABEL " + interpreterLabel + "=/opt/python/bin/python3",
	}
}

// storedImage takes a stored tree, which is put into the Engine once.
func (e *Engine) storedImage(ctx context.Context, i *images.Image) (*dockerImage, error) {
	if i.Name == hostName {
		return nil, &sandbox.Error{
			Kind: sandbox.KindUnavailable, Op: "find image", Subject: "image " + i.Name,
			Err:  errors.New("the machine's own Python is no image that a Docker Engine could have"),
			Mend: "make one with sandboxctl images build, and set engine.docker.image",
		}
	}
	id, err := e.ownImage(ctx, i.Digest)
	if err == nil && id == "" {
		id, err = e.importImage(ctx, i)
	}
	if err != nil {
		return nil, err
	}
	return &dockerImage{
		id: id, interpreter: i.Interpreter, sitePackages: i.SitePackages, python: i.PythonVersion,
		description: i.Name + " " + i.Digest,
	}, nil
}

// hostName is that of images.Host.
const hostName = "host"

// ownImage finds a tree that this daemon has put into the Engine; "" when there is
// none.
func (e *Engine) ownImage(ctx context.Context, digest string) (string, error) {
	want := e.labels(digest)
	args := filters.NewArgs()
	for name, value := range want {
		args.Add("label", name+"="+value)
	}
	list, err := e.api.ImageList(ctx, image.ListOptions{Filters: args})
	if err != nil {
		return "", e.engineError("list images", err)
	}
	for _, found := range list {
		if found.Labels[ownerLabel] == want[ownerLabel] && found.Labels[imageLabel] == want[imageLabel] {
			return found.ID, nil
		}
	}
	return "", nil
}

// importImage streams a tree into the Engine. The name is for people, and keeps the
// image from being taken for one that nobody wants.
func (e *Engine) importImage(ctx context.Context, i *images.Image) (string, error) {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(writeTree(ctx, w, i)) }()
	defer r.Close()
	name := fmt.Sprintf("sandboxd:%s-%.24s", e.cfg.Owner[:8], strings.TrimPrefix(i.Digest, "sha256:"))
	answer, err := e.api.ImageImport(ctx, image.ImportSource{Source: r, SourceName: "-"}, name, image.ImportOptions{
		Message: "imported by sandboxd", Changes: changes(e.labels(i.Digest)),
	})
	if err != nil {
		return "", e.engineError("import image", err)
	}
	defer answer.Close()
	id, err := importedID(answer)
	if err != nil {
		return "", e.engineError("import image", err)
	}
	// The stream may have ended early for the Engine, which takes what it has got.
	info, err := e.api.ImageInspect(ctx, id)
	if err != nil {
		return "", e.engineError("import image", err)
	}
	if info.Config == nil || info.Config.Labels[imageLabel] != i.Digest {
		return "", sandbox.Errorf(sandbox.KindInternal, "import image", i.Digest, "the Docker Engine has made %s without its labels", id)
	}
	return info.ID, nil
}

// importedID reads the answer to an import: lines of JSON, the last of which has
// the id.
func importedID(r io.Reader) (string, error) {
	id := ""
	lines := bufio.NewScanner(io.LimitReader(r, 1<<20))
	for lines.Scan() {
		var line struct {
			Status string `json:"status"`
			Error  string `json:"error"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return "", fmt.Errorf("read answer: %w", err)
		}
		if line.Error != "" {
			return "", errors.New(line.Error)
		}
		id = cmp.Or(line.Status, id)
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	if !strings.HasPrefix(id, "sha256:") || path.Base(id) != id {
		return "", fmt.Errorf("no id in the answer, but %.100q", id)
	}
	return id, nil
}
