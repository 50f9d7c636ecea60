package isolation_test

import (
	"slices"
	"testing"

	"github.com/sandboxd/sandboxd/isolation"
)

func TestCapabilityNumbers(t *testing.T) {
	if got, err := isolation.CapabilityNumbers(isolation.Capabilities()); err != nil || !slices.Equal(got, []int{2, 5, 6, 7}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := isolation.CapabilityNumbers([]string{"CAP_SYS_ADMIN"}); err == nil {
		t.Error("an unknown one was passed over in silence")
	}
}
