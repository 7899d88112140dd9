package config

import (
	"maps"
	"slices"
	"time"

	"github.com/rickar/cal/v2"
	"github.com/rickar/cal/v2/at"
	"github.com/rickar/cal/v2/be"
	"github.com/rickar/cal/v2/ch"
	"github.com/rickar/cal/v2/cz"
	"github.com/rickar/cal/v2/de"
	"github.com/rickar/cal/v2/dk"
	"github.com/rickar/cal/v2/es"
	"github.com/rickar/cal/v2/fr"
	"github.com/rickar/cal/v2/gb"
	"github.com/rickar/cal/v2/it"
	"github.com/rickar/cal/v2/nl"
	"github.com/rickar/cal/v2/no"
	"github.com/rickar/cal/v2/pl"
	"github.com/rickar/cal/v2/se"
	"github.com/rickar/cal/v2/us"
)

// regions maps each value of model.holiday_region to the region's public holidays.
var regions = map[string][]*cal.Holiday{
	"at": at.Holidays, "be": be.Holidays, "ch": ch.Holidays, "cz": cz.Holidays, "de": de.Holidays, "dk": dk.Holidays, "es": es.Holidays,
	"fr": fr.Holidays, "gb": gb.Holidays, "it": it.Holidays, "nl": nl.Holidays, "no": no.Holidays, "pl": pl.Holidays, "se": se.Holidays,
	"us": us.Holidays,
}

// HolidayDates returns the region's holidays from 2000 to 2049 and the dates in m.Holidays, sorted.
func (m Model) HolidayDates() []string {
	dates := make(map[string]bool)
	for _, d := range m.Holidays {
		dates[d] = true
	}
	for _, h := range regions[m.HolidayRegion] {
		for year := 2000; year < 2050; year++ {
			if actual, _ := h.Calc(year); !actual.IsZero() {
				dates[actual.Format(time.DateOnly)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(dates))
}
