-- Codecs of the archive that fit batches better than those of migration 1 (see doc.go). Only new parts use them.
ALTER TABLE `{{.Database}}`.`{{.Local}}` MODIFY COLUMN batch_index UInt32 CODEC(Delta, ZSTD(1));
