package xroute

// CallerContext travels with every request.
type CallerContext struct {
	Properties []CallerContextProperty `xsd:"wrappedProperties,required,nillable"`
	Log1       *string                 `xsd:"@log1"`
	Log2       *string                 `xsd:"@log2"`
	Log3       *string                 `xsd:"@log3"`
}

// CallerContextProperty is a setting by its name, such as CoordFormat.
type CallerContextProperty struct {
	Key   *string `xsd:"@key"`
	Value *string `xsd:"@value"`
}

// RequestOptions say what an answer looks like.
type RequestOptions struct {
	ResponseGeometry  []GeometryEncoding `xsd:"wrappedResponseGeometry,required,nillable"`
	CoordFormat       CoordFormat        `xsd:"@coordFormat,required"`
	Profile           *string            `xsd:"@profile"`
	ProfileXMLSnippet *string            `xsd:"@profileXMLSnippet"`
	SRID              *string            `xsd:"@srId"`
}

// WatchOptions say how long watchJob waits, in milliseconds.
type WatchOptions struct {
	MaximumPollingPeriod *int32 `xsd:"@maximumPollingPeriod"`
	ProgressUpdatePeriod *int32 `xsd:"@progressUpdatePeriod"`
}

// Message is what stands in the body of an envelope: a Request or a Response.
type Message interface{ message() }

// Request is one of *ConvertGeometry, *StartConvertGeometries,
// *FetchConvertGeometries, *WatchJob, *StopJob and *DeleteJob.
type Request interface {
	Message
	request()
}

// Response is the answer to a request: a pointer to the type of its name and
// "Response".
type Response interface {
	Message
	response()
}

type isRequest struct{}

func (*isRequest) message() {}
func (*isRequest) request() {}

type isResponse struct{}

func (*isResponse) message()  {}
func (*isResponse) response() {}

// ConvertGeometry asks for a geometry in other encodings and coordinates.
type ConvertGeometry struct {
	isRequest
	Geometry      EncodedGeometry `xsd:"geometry,required"`
	Options       RequestOptions  `xsd:"options,required"`
	CallerContext *CallerContext  `xsd:"callerContext,nillable"`
}

// ConvertGeometryResponse holds the converted geometry.
type ConvertGeometryResponse struct {
	isResponse
	Result EncodedGeometry `xsd:"result,required"`
}

// StartConvertGeometries asks for the conversion of many geometries as a job.
type StartConvertGeometries struct {
	isRequest
	Geometries    []EncodedGeometry `xsd:"geometries,required"`
	Options       RequestOptions    `xsd:"options,required"`
	CallerContext *CallerContext    `xsd:"callerContext,nillable"`
}

// StartConvertGeometriesResponse holds the job that was started.
type StartConvertGeometriesResponse struct {
	isResponse
	Result Job `xsd:"result,required"`
}

// FetchConvertGeometries asks for what a job has made; it is given out once.
type FetchConvertGeometries struct {
	isRequest
	ID            string         `xsd:"id,required"`
	CallerContext *CallerContext `xsd:"callerContext,nillable"`
}

// FetchConvertGeometriesResponse holds what a job has made.
type FetchConvertGeometriesResponse struct {
	isResponse
	Result ConvertedGeometries `xsd:"result,required"`
}

// ConvertedGeometries are the outcome of a job: the geometries in the order of
// the request, without those that failed. With the job's status UNKNOWN
// (contract 3) or before its end there are none.
type ConvertedGeometries struct {
	Job        Job                 `xsd:"job,required"`
	Geometries []EncodedGeometry   `xsd:"wrappedGeometries,nillable"`
	Failures   []ConversionFailure `xsd:"wrappedFailures,nillable"`
}

// ConversionFailure says why a geometry could not be converted.
type ConversionFailure struct {
	Exception Exception `xsd:"exception,required"`
	Index     int32     `xsd:"@index,required"` // in the request, from 0
}

// WatchJob asks for a job's state when something has changed.
type WatchJob struct {
	isRequest
	ID            string         `xsd:"id,required"`
	Options       *WatchOptions  `xsd:"options,nillable"`
	CallerContext *CallerContext `xsd:"callerContext,nillable"`
}

// WatchJobResponse holds the job's state.
type WatchJobResponse struct {
	isResponse
	Result Job `xsd:"result,required"`
}

// StopJob asks a job to end early; what is done stays.
type StopJob struct {
	isRequest
	ID            string         `xsd:"id,required"`
	CallerContext *CallerContext `xsd:"callerContext,nillable"`
}

// StopJobResponse holds the job's state.
type StopJobResponse struct {
	isResponse
	Result Job `xsd:"result,required"`
}

// DeleteJob asks to forget a job and what it has made.
type DeleteJob struct {
	isRequest
	ID            string         `xsd:"id,required"`
	CallerContext *CallerContext `xsd:"callerContext,nillable"`
}

// DeleteJobResponse holds the job's last state.
type DeleteJobResponse struct {
	isResponse
	Result Job `xsd:"result,required"`
}
