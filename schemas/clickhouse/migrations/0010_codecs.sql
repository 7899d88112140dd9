-- A codec that compresses batches better than the codec of migration 1 (see doc.go). Only new parts use it.
ALTER TABLE `{{.Database}}`.`{{.Local}}` MODIFY COLUMN batch_index UInt32 CODEC(Delta, ZSTD(1));
