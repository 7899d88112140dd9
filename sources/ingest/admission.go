package ingest

import "trafficd/sources/internal/upload"

type admission = upload.Admission

func newAdmission(cfg Config) *admission {
	return upload.NewAdmission(cfg.AdmissionRequests, cfg.AdmissionBytes, admissionGauges)
}
