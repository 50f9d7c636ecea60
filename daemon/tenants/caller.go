package tenants

import "context"

// Caller is the process at the other end of a connection, as the kernel
// recorded it when the connection was made.
type Caller struct {
	UID uint32
	GID uint32
	PID int32 // 0 when it cannot be seen from here
}

// rootUID sees and cancels every run.
const rootUID = 0

// MaySee tells whether the caller may see and cancel what owner started.
func (c Caller) MaySee(owner uint32) bool {
	return c.UID == rootUID || c.UID == owner
}

type callerKey struct{}

// With returns a context that carries the caller.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// From gives the caller that ctx carries.
func From(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}
