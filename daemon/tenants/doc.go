// Package tenants derives who asks from the socket's peer credentials. It must
// never believe a request's body about that. For now a tenant is a user id;
// quotas and named tenants get their room here.
package tenants
