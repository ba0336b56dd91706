//! Sparse multivariate normals against dense ones, their samples against statistics, the noise against its distribution.
#![allow(missing_docs)]

#[path = "../common/allocated.rs"]
mod allocated;
mod dense;
mod draws;
mod memory;
mod mvn;
mod noise;
mod places;
mod samples;
mod statistics;
