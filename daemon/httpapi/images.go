package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sandboxd/sandboxd/daemon/catalog"
	"github.com/sandboxd/sandboxd/sandbox"
)

// importPath takes archives, whose bodies are not read into memory.
const importPath = "/v1/images/import"

const importDescription = "Answers with one JSON object a line (application/x-ndjson): progress, then the image or what went wrong. " +
	"What is wrong before there is any progress is an answer of its own, with its status. " +
	"One image is brought in at a time; a second request is refused with 429. Closing the connection ends it, and leaves nothing."

// imageRoutes registers the operations on images.
func (a *API) imageRoutes() {
	events := a.eventSchema()
	huma.Register(a.huma, huma.Operation{
		OperationID: "list-images", Method: http.MethodGet, Path: "/v1/images",
		Summary: "List the images, the machine's own first",
	}, a.listImages)
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-image", Method: http.MethodGet, Path: "/v1/images/{reference}",
		Summary: "What is known of one image",
	}, a.getImage)
	huma.Register(a.huma, huma.Operation{
		OperationID: "remove-image", Method: http.MethodDelete, Path: "/v1/images/{reference}",
		Summary: "Remove a name, or an image", DefaultStatus: http.StatusNoContent,
		Description: "A name alone goes where the image has others; with its last name, or by its digest, the image goes. One in use is a conflict. Managers only.",
	}, a.removeImage)
	huma.Register(a.huma, huma.Operation{
		OperationID: "bring-in-image", Method: http.MethodPost, Path: "/v1/images",
		Summary: "Have the daemon bring an image in", Description: importDescription + " Managers only.",
		Responses: events, MaxBodyBytes: MaxBody + 1, BodyReadTimeout: -1,
	}, a.bringInImage)
	huma.Register(a.huma, huma.Operation{
		OperationID: "import-image", Method: http.MethodPost, Path: importPath,
		Summary:     "Import an archive that the request carries",
		Description: "An OCI layout, what docker save writes, or a root file system, as a tar, which may be compressed by gzip or zstd. " + importDescription + " Managers only.",
		Responses:   events,
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			archiveType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
		}},
	}, a.importImage)
	huma.Register(a.huma, huma.Operation{
		OperationID: "collect-images", Method: http.MethodPost, Path: "/v1/images/gc",
		Summary:      "Remove images that nobody uses",
		Description:  "What is absent is as configured. Images in use stay, and those that the configuration names. Managers only.",
		MaxBodyBytes: MaxBody + 1, BodyReadTimeout: -1,
	}, a.collectImages)
}

// eventSchema describes the lines of an import.
func (a *API) eventSchema() map[string]*huma.Response {
	schema := huma.SchemaFromType(a.huma.OpenAPI().Components.Schemas, reflect.TypeFor[ImageEvent]())
	return map[string]*huma.Response{"200": {
		Description: "One JSON object a line; the last has an image or a problem",
		Content:     map[string]*huma.MediaType{eventsType: {Schema: schema}},
	}}
}

type listImagesOutput struct {
	Body struct {
		Images []catalog.Entry `json:"images"`
	}
}

func (a *API) listImages(context.Context, *struct{}) (*listImagesOutput, error) {
	out := &listImagesOutput{}
	out.Body.Images = a.images.List()
	return out, nil
}

type imageInput struct {
	Reference string `path:"reference" maxLength:"256" doc:"A name, a digest, or at least 12 digits of one; a / in it is written %2F"`
}

type imageOutput struct{ Body catalog.Entry }

func (a *API) getImage(ctx context.Context, in *imageInput) (*imageOutput, error) {
	entry, err := a.images.Inspect(in.Reference)
	if err != nil {
		return nil, problem(ctx, a.cfg.Logger, err)
	}
	return &imageOutput{Body: entry}, nil
}

func (a *API) removeImage(ctx context.Context, in *imageInput) (*struct{}, error) {
	caller, err := callerIn(ctx)
	if err == nil {
		err = a.images.Remove(ctx, caller, in.Reference)
	}
	if err != nil {
		return nil, problem(ctx, a.cfg.Logger, err)
	}
	return nil, nil //nolint:nilnil // no content
}

type bringInInput struct {
	Body sandbox.ImageRequest
}

func (a *API) bringInImage(_ context.Context, in *bringInInput) (*huma.StreamResponse, error) {
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		a.bringIn(r, &eventStream{w: w}, catalog.Order{ImageRequest: in.Body})
	}}, nil
}

type importInput struct {
	Name string `query:"name" maxLength:"128" doc:"To give to the image; it is taken from another one that has it"`
	Form string `query:"form" enum:"oci,docker,rootfs" doc:"What the archive is; told by its content when absent"`
	Tag  string `query:"tag" maxLength:"512" doc:"Which of several images in the archive"`
}

func (a *API) importImage(_ context.Context, in *importInput) (*huma.StreamResponse, error) {
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		caller, err := callerIn(r.Context())
		if err == nil {
			err = a.images.CheckArchive(caller, r.ContentLength)
		}
		if err != nil {
			a.refuse(w, r, err)
			leave(w)
			return
		}
		// Its own sending is the client's to follow, and a refusal meanwhile has a status.
		stream := &eventStream{w: w, withhold: phaseFetch}
		body := &archive{body: r.Body, conn: http.NewResponseController(w)}
		a.bringIn(r, stream, catalog.Order{
			ImageRequest: sandbox.ImageRequest{Name: in.Name}, Archive: body, Form: in.Form, Tag: in.Tag,
		})
		if !body.ended() {
			leave(w)
		}
	}}, nil
}

// phaseFetch is the phase in which an archive arrives.
const phaseFetch = "fetch"

// bringIn answers one import.
func (a *API) bringIn(r *http.Request, stream *eventStream, o catalog.Order) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	caller, err := callerIn(ctx)
	var entry catalog.Entry
	if err == nil {
		entry, err = a.images.Import(ctx, caller, o, func(p sandbox.ImageProgress) {
			if err := stream.progress(p); err != nil {
				cancel(err) // who does not take the answer in has left
			}
		})
	}
	switch {
	case err == nil:
		_ = stream.send(ImageEvent{Image: &entry}) // the client may have left
	case stream.began:
		_ = stream.send(ImageEvent{Problem: a.problemOf(ctx, err)}) // likewise
	default:
		a.refuse(stream.w, r, err)
	}
}

type collectInput struct {
	Body struct {
		UnusedMillis *int64 `json:"unused_ms,omitempty" minimum:"0" doc:"Images that were not used for so long go; 0 is none"`
		Bytes        *int64 `json:"bytes,omitempty" minimum:"0" doc:"Then those not used for longest, until all take no more; 0 is no bound"`
	}
}

type collectOutput struct {
	Body struct {
		Removed    []sandbox.Image `json:"removed"`
		FreedBytes int64           `json:"freed_bytes"`
	}
}

func (a *API) collectImages(ctx context.Context, in *collectInput) (*collectOutput, error) {
	caller, err := callerIn(ctx)
	if err != nil {
		return nil, problem(ctx, a.cfg.Logger, err)
	}
	g := a.images.Usual()
	if ms := in.Body.UnusedMillis; ms != nil {
		g.UnusedFor = time.Duration(min(*ms, mostUnused)) * time.Millisecond
	}
	if bytes := in.Body.Bytes; bytes != nil {
		g.Bytes = *bytes
	}
	out := &collectOutput{}
	removed, err := a.images.Collect(ctx, caller, g)
	if err != nil {
		return nil, problem(ctx, a.cfg.Logger, err)
	}
	out.Body.Removed = append([]sandbox.Image{}, removed...)
	for _, image := range removed {
		out.Body.FreedBytes += image.Bytes
	}
	return out, nil
}

// mostUnused keeps milliseconds within a duration.
const mostUnused = int64(1<<63-1) / int64(time.Millisecond)
