module baton/internal/kernel/_gen

go 1.26
