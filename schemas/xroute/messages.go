package xroute

// CallerContext is an optional member of every request.
type CallerContext struct {
	Properties []CallerContextProperty `xsd:"wrappedProperties,required,nillable"`
	Log1       *string                 `xsd:"@log1"`
	Log2       *string                 `xsd:"@log2"`
	Log3       *string                 `xsd:"@log3"`
}

// CallerContextProperty is a named value, such as CoordFormat.
type CallerContextProperty struct {
	Key   *string `xsd:"@key"`
	Value *string `xsd:"@value"`
}

// RequestOptions selects the encodings and the coordinate format of the response.
type RequestOptions struct {
	ResponseGeometry  []GeometryEncoding `xsd:"wrappedResponseGeometry,required,nillable"`
	CoordFormat       CoordFormat        `xsd:"@coordFormat,required"`
	Profile           *string            `xsd:"@profile"`
	ProfileXMLSnippet *string            `xsd:"@profileXMLSnippet"`
	SRID              *string            `xsd:"@srId"`
}

// WatchOptions contains the timeout and the interval of watchJob, in milliseconds.
type WatchOptions struct {
	MaximumPollingPeriod *int32 `xsd:"@maximumPollingPeriod"`
	ProgressUpdatePeriod *int32 `xsd:"@progressUpdatePeriod"`
}

// Message is the content of an envelope's body: a Request, a Response or a *Fault.
type Message interface{ message() }

// Request is one of *ConvertGeometry, *StartConvertGeometries, *FetchConvertGeometries, *WatchJob,
// *StopJob and *DeleteJob.
type Request interface {
	Message
	request()
}

// Response is a pointer to a type named after a request, such as *ConvertGeometryResponse.
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

//nolint:revive // contract 3.1 describes the requests and responses
type (
	ConvertGeometry struct {
		isRequest
		Geometry      EncodedGeometry `xsd:"geometry,required"`
		Options       RequestOptions  `xsd:"options,required"`
		CallerContext *CallerContext  `xsd:"callerContext,nillable"`
	}
	ConvertGeometryResponse struct {
		isResponse
		Result EncodedGeometry `xsd:"result,required"`
	}
	StartConvertGeometries struct {
		isRequest
		Geometries    []EncodedGeometry `xsd:"geometries,required"`
		Options       RequestOptions    `xsd:"options,required"`
		CallerContext *CallerContext    `xsd:"callerContext,nillable"`
	}
	StartConvertGeometriesResponse struct {
		isResponse
		Result Job `xsd:"result,required"`
	}
	FetchConvertGeometries struct {
		isRequest
		ID            string         `xsd:"id,required"`
		CallerContext *CallerContext `xsd:"callerContext,nillable"`
	}
	FetchConvertGeometriesResponse struct {
		isResponse
		Result ConvertedGeometries `xsd:"result,required"`
	}
	WatchJob struct {
		isRequest
		ID            string         `xsd:"id,required"`
		Options       *WatchOptions  `xsd:"options,nillable"`
		CallerContext *CallerContext `xsd:"callerContext,nillable"`
	}
	WatchJobResponse  StartConvertGeometriesResponse
	StopJob           FetchConvertGeometries
	StopJobResponse   StartConvertGeometriesResponse
	DeleteJob         FetchConvertGeometries
	DeleteJobResponse StartConvertGeometriesResponse
)

// ConvertedGeometries is the result of a job: the geometries in the order of the request, without
// those that failed. Both lists are absent if the job has not ended, was deleted or is unknown.
type ConvertedGeometries struct {
	Job        Job                 `xsd:"job,required"`
	Geometries []EncodedGeometry   `xsd:"wrappedGeometries,nillable"`
	Failures   []ConversionFailure `xsd:"wrappedFailures,nillable"`
}

// ConversionFailure is the reason why a geometry could not be converted.
type ConversionFailure struct {
	Exception Exception `xsd:"exception,required"`
	Index     int32     `xsd:"@index,required"` // index of the geometry in the request, from 0
}
