-- Only in a cluster: what is read. Nothing is inserted through it, so the sharding key says only
-- where a row would belong: a detector's rows on one shard, for FINAL.
{{- if .Cluster}}
CREATE TABLE IF NOT EXISTS `{{.Database}}`.`{{.Table}}`{{.OnCluster}}
AS `{{.Database}}`.`{{.Local}}`
ENGINE = Distributed('{{.Cluster}}', '{{.Database}}', '{{.Local}}', cityHash64(product_instance, detector_code));
{{- end}}
