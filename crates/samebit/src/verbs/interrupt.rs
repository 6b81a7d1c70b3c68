//! Ctrl-C: the first ends the answer, a second before anybody noticed ends the program.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

static PRESSED: AtomicBool = AtomicBool::new(false);

/// Exit code of a program that Ctrl-C ended, as shells have it.
const EXIT_CODE: i32 = 130;

/// From now on Ctrl-C is noticed instead of ending the program.
pub(super) fn watch() -> Result<(), Failure> {
    ctrlc::set_handler(|| {
        if PRESSED.swap(true, Ordering::SeqCst) {
            std::process::exit(EXIT_CODE);
        }
    })
    .map_err(|error| Failure::new(format!("Ctrl-C cannot be watched: {error}")))
}

/// Whether Ctrl-C was pressed since the last [`forget`].
pub(super) fn pressed() -> bool {
    PRESSED.load(Ordering::SeqCst)
}

/// Forgets that it was pressed.
pub(super) fn forget() {
    PRESSED.store(false, Ordering::SeqCst);
}
