package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/sandboxd/sandboxd/sandbox"
)

// Image is an image as the daemon tells of it.
type Image struct {
	sandbox.Image
	Default bool `json:"default"`
	Allowed bool `json:"allowed"`
}

// ListImages lists the images.
func (c *Client) ListImages(ctx context.Context) ([]Image, error) {
	var out struct {
		Images []Image `json:"images"`
	}
	err := c.call(ctx, http.MethodGet, "/v1/images", nil, &out)
	return out.Images, err
}

// InspectImage tells of one image, by name, digest or the beginning of a digest.
func (c *Client) InspectImage(ctx context.Context, reference string) (Image, error) {
	var out Image
	err := c.call(ctx, http.MethodGet, "/v1/images/"+url.PathEscape(reference), nil, &out)
	return out, err
}

// RemoveImage removes a name, or an image.
func (c *Client) RemoveImage(ctx context.Context, reference string) error {
	return c.call(ctx, http.MethodDelete, "/v1/images/"+url.PathEscape(reference), nil, nil)
}

// Garbage says which images may go; nil is what the daemon's configuration says.
type Garbage struct {
	UnusedMillis *int64 `json:"unused_ms,omitempty"`
	Bytes        *int64 `json:"bytes,omitempty"`
}

// Collected is what a collection has removed.
type Collected struct {
	Removed    []sandbox.Image `json:"removed"`
	FreedBytes int64           `json:"freed_bytes"`
}

// CollectImages removes images that nobody uses.
func (c *Client) CollectImages(ctx context.Context, g Garbage) (Collected, error) {
	var out Collected
	err := c.call(ctx, http.MethodPost, "/v1/images/gc", g, &out)
	return out, err
}

// BringInImage has the daemon bring an image in. progress may be nil. Canceling
// ctx ends it.
func (c *Client) BringInImage(ctx context.Context, r sandbox.ImageRequest, progress func(sandbox.ImageProgress)) (Image, error) {
	text, err := encode(r)
	if err != nil {
		return Image{}, fmt.Errorf("encode request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sandboxd/v1/images", bytes.NewReader(text))
	if err != nil {
		return Image{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	return c.follow(req, progress)
}

// Archive is an image to be sent.
type Archive struct {
	Content io.Reader
	Bytes   int64 // 0 where it is not known
	Name    string
	Form    string // oci, docker, rootfs; empty to be told by its content
	Tag     string // of one among several images
}

// ImportImage sends an image. progress tells of what the daemon does once it has
// it, and may be nil. Canceling ctx ends it.
func (c *Client) ImportImage(ctx context.Context, a Archive, progress func(sandbox.ImageProgress)) (Image, error) {
	query := url.Values{}
	for key, value := range map[string]string{"name": a.Name, "form": a.Form, "tag": a.Tag} {
		if value != "" {
			query.Set(key, value)
		}
	}
	// The transport would wait for a read of the content even when ctx has ended,
	// and one of a terminal or a pipe may take for ever. The copying goroutine is
	// therefore not waited for: it ends with the content.
	body, content := io.Pipe()
	defer body.Close()
	defer context.AfterFunc(ctx, func() { _ = body.CloseWithError(context.Cause(ctx)) })()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sandboxd/v1/images/import?"+query.Encode(), body)
	if err != nil {
		return Image{}, err
	}
	go func() {
		_, err := io.Copy(content, a.Content)
		content.CloseWithError(err)
	}()
	req.Header.Set("Content-Type", "application/x-tar")
	req.Header.Set("Expect", "100-continue") // a refusal should not cost the sending
	if req.ContentLength = a.Bytes; a.Bytes == 0 {
		req.ContentLength = -1
	}
	return c.follow(req, progress)
}

// event is one line of an import's answer.
type event struct {
	Progress *sandbox.ImageProgress `json:"progress"`
	Image    *Image                 `json:"image"`
	Problem  *Problem               `json:"problem"`
}

// follow reads the lines of an import to the last.
func (c *Client) follow(req *http.Request, progress func(sandbox.ImageProgress)) (Image, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return Image{}, c.connectError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return Image{}, fmt.Errorf("read answer: %w", err)
		}
		return Image{}, problemOf(resp, text)
	}
	lines := json.NewDecoder(resp.Body)
	for {
		var e event
		err := lines.Decode(&e)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return Image{}, errors.New("the daemon ended before the import did")
		case err != nil:
			return Image{}, fmt.Errorf("read answer: %w", err)
		case e.Problem != nil:
			return Image{}, e.Problem
		case e.Image != nil:
			return *e.Image, nil
		case e.Progress != nil && progress != nil:
			progress(*e.Progress)
		}
	}
}
