package feeds

import "time"

// formats is the table of formats and of the publishers whose documents need other defaults.
var formats = []Format{
	{"datex2", Options{}, parseDatex2},
	// Netherlands: one minute, its beginning; -1 or 0 inputs for no vehicle.
	{"ndw", Options{Time: Begin, Period: time.Minute, MinusOne: true}, parseDatex2},
	// Finland states the meaning of its times.
	{"fintraffic", Options{Time: End, Period: 5 * time.Minute}, parseDatex2},
	// France: six minutes.
	{"bison-fute", Options{Time: Begin, Period: 6 * time.Minute}, parseDatex2},
	{"autobahn", Options{Time: End, Period: time.Minute}, parseDatex2},
	{"swiss", Options{Time: Begin, Period: time.Minute}, parseDatex2},
}
