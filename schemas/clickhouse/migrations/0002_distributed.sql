-- Only in a cluster: the tables for queries and inserts. Distributed tables have no rows of their own, so they are replaced.
{{- if .Cluster}}
CREATE OR REPLACE TABLE `{{.Database}}`.`{{.Table}}`
AS `{{.Database}}`.`{{.Local}}`
ENGINE = Distributed('{{.Cluster}}', '{{.Database}}', '{{.Local}}', {{.ShardingKey}});
{{- end}}
