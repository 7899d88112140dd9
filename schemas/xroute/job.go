package xroute

// JobStatus is the status of a job (contract 3.4).
type JobStatus string

// The statuses of a job.
const (
	StatusQueuing   JobStatus = "QUEUING"
	StatusRunning   JobStatus = "RUNNING"
	StatusStopping  JobStatus = "STOPPING"
	StatusSucceeded JobStatus = "SUCCEEDED"
	StatusFailed    JobStatus = "FAILED"
	StatusDeleted   JobStatus = "DELETED"
	StatusUnknown   JobStatus = "UNKNOWN"
)

// Ended reports whether the status of a job is final.
func (s JobStatus) Ended() bool {
	return s != StatusQueuing && s != StatusRunning && s != StatusStopping
}

// Job is the state of a job at the time of the response.
type Job struct {
	Progress    JobProgress `xsd:"progress"`
	ElapsedTime int32       `xsd:"@elapsedTime,required"`
	ID          *string     `xsd:"@id"`
	Status      JobStatus   `xsd:"@status,required"`
}

// JobProgress is a *BulkProgress, a *DistanceMatrixProgress or a *PlanProgress.
type JobProgress interface{ jobProgress() }

type progressBase struct{}

func (*progressBase) jobProgress() {}

//nolint:revive // contract 5.4 describes these types; this service uses BulkProgress only
type (
	BulkProgress struct {
		progressBase
		Failed     int32 `xsd:"@failed,required"`
		Remaining  int32 `xsd:"@remaining,required"`
		Successful int32 `xsd:"@successful,required"`
	}
	DistanceMatrixProgress struct {
		progressBase
		CurrentRowIndex int32 `xsd:"@currentRowIndex,required"`
		LastRowIndex    int32 `xsd:"@lastRowIndex,required"`
	}
	PlanProgress struct {
		progressBase
		DistanceMatrixCalculationProgress *DistanceMatrixCalculationProgress `xsd:"distanceMatrixCalculationProgress"`
		ImprovementProgress               *ImprovementProgress               `xsd:"improvementProgress"`
		Action                            *string                            `xsd:"@action"`
	}
	DistanceMatrixCalculationProgress struct {
		CurrentDistanceMatrixProgress *DistanceMatrixProgress `xsd:"currentDistanceMatrixProgress"`
		CurrentDimaIndex              int32                   `xsd:"@currentDimaIndex,required"`
		DimaID                        int32                   `xsd:"@dimaId,required"`
		LastDimaIndex                 int32                   `xsd:"@lastDimaIndex,required"`
	}
	ImprovementProgress struct {
		BestPlan             *KeyFigures `xsd:"bestPlan"`
		CurrentPlan          *KeyFigures `xsd:"currentPlan"`
		InitialPlan          *KeyFigures `xsd:"initialPlan"`
		AvailableMachineTime int32       `xsd:"@availableMachineTime,required"`
		IterationIndex       int32       `xsd:"@iterationIndex,required"`
		NumberOfImprovements int32       `xsd:"@numberOfImprovements,required"`
		UsedMachineTime      int32       `xsd:"@usedMachineTime,required"`
	}
	KeyFigures struct {
		CostOfObjectiveFunction   int32 `xsd:"@costOfObjectiveFunction,required"`
		NumberOfInfeasibleOrders  int32 `xsd:"@numberOfInfeasibleOrders,required"`
		NumberOfScheduledOrders   int32 `xsd:"@numberOfScheduledOrders,required"`
		NumberOfScheduledVehicles int32 `xsd:"@numberOfScheduledVehicles,required"`
		NumberOfUnscheduledOrders int32 `xsd:"@numberOfUnscheduledOrders,required"`
		TotalChainCost            int32 `xsd:"@totalChainCost,required"`
		TotalChainPeriod          int32 `xsd:"@totalChainPeriod,required"`
		TotalTourCost             int32 `xsd:"@totalTourCost,required"`
		TotalTourCount            int32 `xsd:"@totalTourCount,required"`
		TotalTourDistance         int32 `xsd:"@totalTourDistance,required"`
		TotalTourDrivingPeriod    int32 `xsd:"@totalTourDrivingPeriod,required"`
		TotalTourPeriod           int32 `xsd:"@totalTourPeriod,required"`
		TotalTourWaitingPeriod    int32 `xsd:"@totalTourWaitingPeriod,required"`
	}
	OptimizationProgress struct {
		CurrentLoopIndex int32 `xsd:"@currentLoopIndex,required"`
		LastLoopIndex    int32 `xsd:"@lastLoopIndex,required"`
		Progress         int32 `xsd:"@progress,required"`
	}
)
