package httpapi

import "net/http"

func (a *API) metrics(w http.ResponseWriter, r *http.Request) { a.unknown(w, r) }
