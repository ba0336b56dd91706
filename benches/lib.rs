//! Nothing: the benchmarks are the targets beside this file.
