//! Products: against exact products within the bounds of PLAN.md, and bit for bit between every way to compute them.

mod bounds;
mod paths;
mod samples;
mod tiles;
