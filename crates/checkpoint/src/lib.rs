//! TODO
#![deny(unsafe_code)]
