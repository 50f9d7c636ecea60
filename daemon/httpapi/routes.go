package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandboxd/sandboxd/daemon/runs"
	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/sandbox"
)

// routes registers every operation.
func (a *API) routes() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "create-run", Method: http.MethodPost, Path: "/v1/runs",
		Summary:     "Run a solution against its tests, or a program",
		Description: "Answers when the run has ended and every process of it is dead. Closing the connection cancels it.",
		// The body was read and bounded by readBody; one byte more than it lets
		// through keeps huma's own bound out of the way.
		MaxBodyBytes: MaxBody + 1, BodyReadTimeout: -1,
	}, a.createRun)
	huma.Register(a.huma, huma.Operation{
		OperationID: "list-runs", Method: http.MethodGet, Path: "/v1/runs",
		Summary: "List the caller's live runs; root sees all",
	}, a.listRuns)
	huma.Register(a.huma, huma.Operation{
		OperationID: "cancel-run", Method: http.MethodDelete, Path: "/v1/runs/{id}",
		Summary: "Cancel a live run", DefaultStatus: http.StatusNoContent,
		Description: "Does not wait. The call that started the run answers with the verdict canceled, unless the program had already left.",
	}, a.cancelRun)
	a.imageRoutes()
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-info", Method: http.MethodGet, Path: "/v1/info",
		Summary: "What this daemon is and what it offers",
	}, a.info)
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-doctor", Method: http.MethodGet, Path: "/v1/doctor",
		Summary: "What each engine can hold and enforce on this host",
	}, a.doctor)
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-health", Method: http.MethodGet, Path: "/healthz",
		Summary: "Whether the daemon takes runs",
	}, a.health)
}

type createRunInput struct {
	Body sandbox.Spec
}

type createRunOutput struct {
	Body sandbox.Result
}

func (a *API) createRun(ctx context.Context, in *createRunInput) (*createRunOutput, error) {
	caller, err := callerIn(ctx)
	if err != nil {
		return nil, problem(ctx, a.cfg.Logger, err)
	}
	res, err := a.runs.Run(ctx, caller, runs.Order{Spec: &in.Body, Fault: foundIn(ctx).fault})
	if err != nil {
		return nil, problem(ctx, a.cfg.Logger, err)
	}
	return &createRunOutput{Body: res}, nil
}

type listRunsOutput struct {
	Body struct {
		Runs []runs.LiveRun `json:"runs"`
	}
}

func (a *API) listRuns(ctx context.Context, _ *struct{}) (*listRunsOutput, error) {
	caller, err := callerIn(ctx)
	if err != nil {
		return nil, problem(ctx, a.cfg.Logger, err)
	}
	out := &listRunsOutput{}
	out.Body.Runs = a.runs.List(caller)
	return out, nil
}

type cancelRunInput struct {
	ID string `path:"id" maxLength:"64" doc:"Id of the run"`
}

func (a *API) cancelRun(ctx context.Context, in *cancelRunInput) (*struct{}, error) {
	caller, err := callerIn(ctx)
	if err == nil {
		err = a.runs.Cancel(caller, in.ID)
	}
	if err != nil {
		return nil, problem(ctx, a.cfg.Logger, err)
	}
	return nil, nil //nolint:nilnil // no content
}

func callerIn(ctx context.Context) (tenants.Caller, error) {
	caller, ok := tenants.From(ctx)
	if !ok {
		return caller, sandbox.Errorf(sandbox.KindDenied, "identify", "", "no peer credentials")
	}
	return caller, nil
}
