package build

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	types "github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/sandboxd/sandboxd"
	"github.com/sandboxd/sandboxd/images/source"
	"github.com/sandboxd/sandboxd/sandbox"
)

const (
	dockerfile = "Dockerfile.python"
	// markLabel tells builds apart: all that a build makes carries it from the
	// first step on, so that what one leaves that was broken off can be found.
	markLabel = "org.sandboxd.build"
	// A build's containers have this memory and no swap. pip takes some 200 MiB
	// for the largest wheels.
	buildMemory = 2 << 30
)

// Python has the Engine build Dockerfile.python and returns the image's ID. When
// ctx ends, so does the build; what there is of it is removed before Python
// returns. progress may be nil.
func Python(ctx context.Context, e source.Engine, r Request, progress func(Progress)) (_ string, err error) {
	if err := r.Validate(); err != nil {
		return "", err
	}
	api, err := e.Connect()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	b := builder{engine: e, api: api, mark: rand.Text(), output: output{tell: progress}}
	if progress == nil {
		b.output.tell = func(Progress) {}
	}
	base, err := b.base(ctx, r)
	if err != nil {
		return "", b.failure(ctx, err)
	}
	if err := b.run(ctx, r.arguments(base), r.Network); err != nil {
		return "", errors.Join(b.failure(ctx, err), b.cleanUp(ctx))
	}
	return b.output.image, nil
}

// failure says that a build was broken off, whatever was heard of that first.
func (b *builder) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &sandbox.Error{Kind: sandbox.KindCanceled, Op: "build image", Subject: b.output.where(), Err: context.Cause(ctx)}
	}
	return b.engine.Failure(ctx, "build image", "", err)
}

// Remove removes from an Engine what Python has made, when it has been imported.
// An image that is gone already, or that the Engine still needs, is no error.
func Remove(ctx context.Context, e source.Engine, imageID string) (err error) {
	if !source.IsImageID(imageID) {
		return sandbox.Errorf(sandbox.KindInvalid, "remove built image", "", "%.100q is no image's ID", imageID)
	}
	api, err := e.Connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	_, err = api.ImageRemove(ctx, imageID, image.RemoveOptions{PruneChildren: true})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return nil
	}
	return e.Failure(ctx, "remove built image", imageID, err)
}

// builder is one build under way.
type builder struct {
	engine source.Engine
	api    *client.Client
	mark   string
	output output
}

// base chooses what to build on: by its ID, so that it is the image that was looked
// at. One without a name would be removed together with what is built on it, and
// one with triggers has steps of its own, which fetch what they like and copy from
// other images of the Engine.
func (b *builder) base(ctx context.Context, r Request) (string, error) {
	name := cmp.Or(r.Base, defaultBase())
	found, err := b.engine.Find(ctx, b.api, name)
	if sandbox.KindOf(err) == sandbox.KindNotFound && r.Network && !source.IsImageID(name) {
		if err := b.pull(ctx, name); err != nil {
			return "", err
		}
		found, err = b.engine.Find(ctx, b.api, name)
	}
	unfit := func(mend, format string, args ...any) error {
		return &sandbox.Error{
			Kind: sandbox.KindInvalid, Op: "build image", Subject: "base " + name, Err: fmt.Errorf(format, args...), Mend: mend,
		}
	}
	switch {
	case sandbox.KindOf(err) == sandbox.KindNotFound:
		return "", &sandbox.Error{
			Kind: sandbox.KindNotFound, Op: "build image", Subject: "base " + name, Err: errors.New("the Docker Engine does not have it"),
			Mend: "docker pull it, allow the build the network, or make one: make base, docker import build/base.tar NAME",
		}
	case err != nil:
		return "", err
	case !found.Named:
		return "", unfit("docker tag it", "the Docker Engine has no name for it")
	case found.Triggers > 0:
		return "", unfit("take another base", "it has %d ONBUILD triggers", found.Triggers)
	}
	return found.ID, nil
}

// pull has the Engine fetch a base.
func (b *builder) pull(ctx context.Context, name string) (err error) {
	said, err := b.api.ImagePull(ctx, name, image.PullOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, said.Close()) }()
	if err = b.output.read(said, maxPullBytes); sandbox.KindOf(err) == sandbox.KindInvalid {
		return &sandbox.Error{Kind: sandbox.KindNotFound, Op: "pull image", Subject: "base " + name, Err: err}
	}
	return err
}

var defaultBaseLine = regexp.MustCompile(`(?m)^ARG BASE=(\S+)$`)

// defaultBase is what Dockerfile.python says; a test proves that it says so.
func defaultBase() string {
	if m := defaultBaseLine.FindStringSubmatch(sandboxd.DockerfilePython); m != nil {
		return m[1]
	}
	return ""
}

// run builds, and reads what the Engine says to its end.
func (b *builder) run(ctx context.Context, arguments map[string]*string, network bool) (err error) {
	files, err := buildContext(b.mark)
	if err != nil {
		return err
	}
	mode := "none"
	if network {
		mode = "default"
	}
	answer, err := b.api.ImageBuild(ctx, files, types.ImageBuildOptions{
		Version: types.BuilderV1, Dockerfile: dockerfile, BuildArgs: arguments, NetworkMode: mode,
		Remove: true, ForceRemove: true, Memory: buildMemory, MemorySwap: buildMemory,
	})
	if err != nil {
		return err
	}
	// Hanging up is what ends a build: the Engine notices, and stops it.
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	return b.output.build(answer.Body)
}

const fromLine = "\nFROM ${BASE}\n"

// buildContext is all that the Engine is given: one file.
func buildContext(mark string) (io.Reader, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	text := strings.Replace(sandboxd.DockerfilePython, fromLine, fromLine+"LABEL "+markLabel+"="+mark+"\n", 1)
	if err := w.WriteHeader(&tar.Header{Name: dockerfile, Mode: 0o644, Size: int64(len(text))}); err != nil {
		return nil, fmt.Errorf("pack build context: %w", err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		return nil, fmt.Errorf("pack build context: %w", err)
	}
	return &b, w.Close()
}

// An Engine does not say when it has noticed that nobody listens any more: it has
// forgotten a build when it was seen without it several times.
const (
	cleanUpFor  = 20 * time.Second
	looksClean  = 4
	lookedEvery = 50 * time.Millisecond
)

// cleanUp removes what a build that failed or was broken off has left.
func (b *builder) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpFor)
	defer cancel()
	for clean := 0; clean < looksClean; {
		found, err := b.remove(ctx)
		if err != nil {
			return b.unclean(ctx, err)
		}
		if clean++; found {
			clean = 0
		}
		select {
		case <-ctx.Done():
			return b.unclean(ctx, context.Cause(ctx))
		case <-time.After(lookedEvery):
		}
	}
	return nil
}

// remove removes the build's containers and, once there are none, its layers. It
// tells whether it has found any.
func (b *builder) remove(ctx context.Context) (bool, error) {
	marked := filters.NewArgs(filters.Arg("label", markLabel+"="+b.mark))
	left, err := b.api.ContainerList(ctx, container.ListOptions{All: true, Filters: marked})
	if err != nil {
		return false, err
	}
	for _, c := range left {
		err := b.api.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) { // a conflict: it is being removed
			return true, err
		}
	}
	if len(left) > 0 {
		return true, nil
	}
	marked.Add("dangling", "true")
	report, err := b.api.ImagesPrune(ctx, marked)
	return len(report.ImagesDeleted) > 0, err
}

// unclean says that something is left behind. An Engine that cannot be reached is
// what the build's own error says already.
func (b *builder) unclean(ctx context.Context, err error) error {
	if err == nil || client.IsErrConnectionFailed(err) {
		return nil
	}
	return b.engine.Failure(ctx, "clean up after build", "Docker Engine", err)
}
