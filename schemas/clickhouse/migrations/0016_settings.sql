-- The sources of a merge are kept until the merged part is certainly on disk (see doc.go). This is the servers' default; it is
-- pinned, because acknowledgements rely on it.
{{- range $table := .Synced}}
ALTER TABLE `{{$.Database}}`.`{{$table}}` MODIFY SETTING old_parts_lifetime = 480;
{{- end}}
