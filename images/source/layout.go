package source

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// tagAnnotations name an image of a layout: by the OCI specification, and by
// containerd.
var tagAnnotations = []string{"org.opencontainers.image.ref.name", "io.containerd.image.name"}

// openLayout reads an image of an OCI layout (OCI image specification,
// image-layout.md).
func openLayout(b blobs, o Options) (*Image, error) {
	data, err := document(b, "index.json")
	if err != nil {
		return nil, err
	}
	descriptor, err := choose(b, data, o, 0)
	if err != nil {
		return nil, err
	}
	if data, err = digested(b, descriptor.Digest); err != nil {
		return nil, err
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil {
		return nil, invalid(blobName(descriptor.Digest), "%w", err)
	}
	if data, err = digested(b, manifest.Config.Digest); err != nil {
		return nil, err
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(data))
	if err != nil {
		return nil, invalid(blobName(manifest.Config.Digest), "%w", err)
	}
	var names []string
	for _, l := range manifest.Layers {
		names = append(names, blobName(l.Digest))
	}
	layers, err := layersOf(config, names, o)
	if err != nil {
		return nil, err
	}
	if layers, err = stored(b, layers); err != nil {
		return nil, err
	}
	return &Image{Origin: "OCI layout, manifest " + descriptor.Digest.String(), Layers: layers, Layered: true}, nil
}

// choose finds the manifest of the one image that was asked for, through indexes
// of platforms where there are some.
func choose(b blobs, index []byte, o Options, depth int) (v1.Descriptor, error) {
	if depth > maxIndexes {
		return v1.Descriptor{}, invalid("index", "indexes lead to each other")
	}
	parsed, err := v1.ParseIndexManifest(bytes.NewReader(index))
	if err != nil {
		return v1.Descriptor{}, invalid("index", "%w", err)
	}
	fit := slices.DeleteFunc(parsed.Manifests, func(d v1.Descriptor) bool { return !fits(d, o, depth) })
	switch {
	case len(fit) == 0:
		return v1.Descriptor{}, invalid("index", "no image for linux/%s%s", o.Arch, ofTag(o.Tag))
	case len(fit) > 1 && depth == 0:
		return v1.Descriptor{}, invalid("index", "%d images; name one of them by its tag", len(fit))
	case !fit[0].MediaType.IsIndex():
		return fit[0], nil
	}
	if index, err = digested(b, fit[0].Digest); err != nil {
		return v1.Descriptor{}, err
	}
	return choose(b, index, o, depth+1)
}

func fits(d v1.Descriptor, o Options, depth int) bool {
	if !d.MediaType.IsIndex() && !d.MediaType.IsImage() {
		return false
	}
	if p := d.Platform; p != nil && (p.OS != "linux" || p.Architecture != o.Arch) {
		return false // attestations are of the platform unknown/unknown
	}
	if o.ID != "" && depth == 0 && d.Digest.String() != o.ID {
		return false
	}
	return depth > 0 || o.Tag == "" || slices.ContainsFunc(tagAnnotations, func(key string) bool { return d.Annotations[key] == o.Tag })
}

func ofTag(tag string) string {
	if tag == "" {
		return ""
	}
	return fmt.Sprintf(" with the tag %q", tag)
}

// dockerImage is an entry of the list that `docker save` writes.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// openDocker reads what `docker save` writes. An Engine calls an image by the
// digest of its configuration or, where it keeps images as containerd does, by that
// of its manifest or index; the archive is then a layout, too.
func openDocker(b blobs, o Options) (*Image, error) {
	const list = "manifest.json"
	data, err := document(b, list)
	if err != nil {
		return nil, err
	}
	var all []dockerImage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, invalid(list, "%w", err)
	}
	fit := slices.DeleteFunc(all, func(i dockerImage) bool { return o.Tag != "" && !slices.Contains(i.RepoTags, o.Tag) })
	switch {
	case len(fit) == 0:
		return nil, invalid(list, "no image%s", ofTag(o.Tag))
	case len(fit) > 1:
		return nil, invalid(list, "%d images; name one of them by its tag", len(fit))
	}
	if data, err = document(b, fit[0].Config); err != nil {
		return nil, err
	}
	if o.ID != "" && o.ID != digestOf(data) {
		img, err := openLayout(b, o)
		if err != nil {
			return nil, invalid(list, "the archive does not hold %s: %w", o.ID, err)
		}
		return img, nil
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(data))
	if err != nil {
		return nil, invalid(fit[0].Config, "%w", err)
	}
	layers, err := layersOf(config, fit[0].Layers, o)
	if err != nil {
		return nil, err
	}
	if layers, err = stored(b, layers); err != nil {
		return nil, err
	}
	return &Image{Origin: strings.TrimSpace("docker archive " + printable(strings.Join(fit[0].RepoTags, " "))), Layers: layers, Layered: true}, nil
}
