-- Only in a cluster: the tables for queries and inserts. Distributed tables hold no rows, so they can be replaced.
{{- if .Cluster}}
CREATE OR REPLACE TABLE `{{.Database}}`.`{{.Table}}`
AS `{{.Database}}`.`{{.Local}}`
ENGINE = Distributed('{{.Cluster}}', '{{.Database}}', '{{.Local}}', {{.ShardingKey}});
{{- end}}
