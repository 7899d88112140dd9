-- The forecaster's model.interval when it learned the day, or 0 if an earlier version did. Migration 20 also creates the column, since a
-- new replica must have the columns of the others.
ALTER TABLE `{{.Database}}`.forecaster_learned ADD COLUMN IF NOT EXISTS interval_seconds UInt32;
