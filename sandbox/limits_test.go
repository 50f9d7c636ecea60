package sandbox

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestLimits_FieldsNamesEveryField: a limit that Fields forgets would be
// planned, enforced and documented nowhere.
func TestLimits_FieldsNamesEveryField(t *testing.T) {
	var l Limits
	fields := l.Fields()
	kind := reflect.TypeFor[Limits]()
	if len(fields) != kind.NumField() {
		t.Fatalf("%d fields of %d", len(fields), kind.NumField())
	}
	for i, f := range fields {
		name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		if f.Name != name {
			t.Errorf("field %d is %s, its JSON name %s", i, f.Name, name)
		}
		*f.Value = int64(i + 1)
		if got := reflect.ValueOf(l).Field(i).Int(); got != int64(i+1) {
			t.Errorf("%s does not point at its field", f.Name)
		}
	}
}

func TestLimits_DefaultsAreWithinTheCeilings(t *testing.T) {
	planned, named, err := Limits{}.Plan(DefaultLimits(), DefaultCeilings())
	if err != nil || planned != DefaultLimits() || len(named) != 0 {
		t.Errorf("%+v, %v, %v", planned, named, err)
	}
}

func TestLimits_Plan(t *testing.T) {
	planned, named, err := Limits{CPUMillis: 5, WallMillis: 7}.Plan(DefaultLimits(), DefaultCeilings())
	if err != nil || planned.CPUMillis != 5 || planned.MemoryBytes != DefaultLimits().MemoryBytes || !slices.Equal(named, []string{"wall_ms", "cpu_ms"}) {
		t.Errorf("%+v, %v, %v", planned, named, err)
	}
	ceilings := DefaultCeilings()
	ceilings.WallMillis = 100
	if planned, _, err = (Limits{}).Plan(DefaultLimits(), ceilings); err != nil || planned.WallMillis != 100 {
		t.Errorf("a default over the ceiling: %d, %v", planned.WallMillis, err)
	}
	for _, l := range []Limits{{WallMillis: -1}, {WallMillis: 101}, {MemoryBytes: 5}} {
		var e *Error
		if _, _, err := l.Plan(DefaultLimits(), ceilings); !errors.As(err, &e) || e.Kind != KindInvalid || !strings.HasPrefix(e.Subject, "limits.") {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
