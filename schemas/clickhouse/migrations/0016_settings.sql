-- The source parts of a merge are kept until the merged part is certainly on disk (see doc.go). 480 s is the servers' default.
-- It is pinned because acknowledgements rely on it.
{{- range $table := .Synced}}
ALTER TABLE `{{$.Database}}`.`{{$table}}` MODIFY SETTING old_parts_lifetime = 480;
{{- end}}
