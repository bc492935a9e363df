#!/usr/bin/env Rscript
# José Müller, 2024 – média (± SE) 身長
suppressPackageStartupMessages({
  library(optparse)
  library(jsonlite)
  library(dplyr)
})
parser <- OptionParser(usage = "%prog BIDS_DIR OUTPUT_DIR LEVEL")
paths <- parse_args(parser, positional_arguments = 3)$args
people <- read.delim(file.path(paths[1], "participants.tsv"), na.strings = "n/a")
found <- people %>% summarise(mean = mean(Height, na.rm = TRUE))
dir.create(paths[2], showWarnings = FALSE, recursive = TRUE)
table <- data.frame(measure = "height", mean = found$mean)
write.table(table, file.path(paths[2], "results.tsv"), sep = "\t", quote = FALSE, row.names = FALSE)
write(toJSON(found, auto_unbox = TRUE), file.path(paths[2], "results.json"))
