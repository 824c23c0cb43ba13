module rigs.invalid/pause

go 1.26.0
