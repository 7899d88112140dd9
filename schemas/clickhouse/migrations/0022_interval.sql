-- The forecaster's model.interval when it learned the day, or 0 if an earlier version did.
ALTER TABLE `{{.Database}}`.forecaster_learned ADD COLUMN IF NOT EXISTS interval_seconds UInt32;
