//! What has to do with HTTP and not with any one API.

pub(crate) mod body;
pub(crate) mod keys;
pub(crate) mod outer;
pub(crate) mod stream;
