//! The session bank: what comes back has the bits of what was computed, and nothing else ever comes back.

#[path = "bank/damage.rs"]
mod damage;
#[path = "bank/disk.rs"]
mod disk;
#[path = "bank/kill.rs"]
mod kill;
#[path = "bank/memory.rs"]
mod memory;
#[path = "bank/support.rs"]
mod support;
