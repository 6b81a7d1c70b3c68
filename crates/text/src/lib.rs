//! TODO
#![forbid(unsafe_code)]
