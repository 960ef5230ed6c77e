package quota_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/quota"
)

// Windows of one hour end with their hour, so that what is over is known as soon.
func TestLatestEnd_P36_Hour(t *testing.T) {
	t.Parallel()
	w := quota.Calendar{Kind: quota.Hour}.Window(time.Date(2026, 11, 30, 10, 20, 0, 0, time.UTC))
	if end, ok := quota.LatestEnd(w.ID); !ok || !end.Equal(w.End) {
		t.Errorf("%s ends at %v, %v; want %v", w.ID, end, ok, w.End)
	}
	for _, id := range []string{"", "hour", "hour@", "hour@x", "fortnight@2026-11-30T00:00Z", "hour1@2026-11-30T00:00Z", "5h@2026-11-30T00:00Z"} {
		if end, ok := quota.LatestEnd(id); ok {
			t.Errorf("%q ends at %v", id, end)
		}
	}
}

// No window is over later than its id tells, nor much earlier.
func TestLatestEnd_P11_P12_NeverTooEarly(t *testing.T) {
	t.Parallel()
	zones := make([]*time.Location, 0, 6)
	for _, name := range []string{"UTC", "Europe/Berlin", "Pacific/Apia", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, zone)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := quota.Calendar{
			Kind:   quota.CalendarKind(rapid.IntRange(int(quota.Hour), int(quota.Billing)).Draw(t, "kind")),
			Anchor: rapid.IntRange(1, 31).Draw(t, "anchor"),
			Zone:   rapid.SampledFrom(zones).Draw(t, "zone"),
			Times:  rapid.IntRange(0, 40).Draw(t, "times"),
		}
		w := c.Window(time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "at"), 0))
		end, ok := quota.LatestEnd(w.ID)
		if length := w.End.Sub(w.Start); !ok || end.Before(w.End) || end.Sub(w.End) > 48*time.Hour+length/4 {
			t.Fatalf("%+v: %s ends at %v by its id (%v), really at %v", c, w.ID, end, ok, w.End)
		}
	})
}
