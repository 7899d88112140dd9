-- Only in a cluster: the table for queries. Nothing is inserted through it; the sharding key only describes
-- that all rows of a detector are on one shard, which FINAL needs.
{{- if .Cluster}}
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Table}}`{{.OnCluster}}
AS `{{.Database}}`.`{{.Local}}`
ENGINE = Distributed('{{.Cluster}}', '{{.Database}}', '{{.Local}}', cityHash64(product_instance, detector_code));
{{- end}}
