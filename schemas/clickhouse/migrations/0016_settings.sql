-- The sources of a merge are kept until the merged part is on disk for certain (see doc.go). It is the default of servers, and
-- pinned, because what is acknowledged depends on it.
{{- range $table := .Synced}}
ALTER TABLE `{{$.Database}}`.`{{$table}}` MODIFY SETTING old_parts_lifetime = 480;
{{- end}}
