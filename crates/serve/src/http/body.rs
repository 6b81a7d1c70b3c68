//! Bodies: bounded, and JSON.

use axum::body::{Body, Bytes, to_bytes};
use serde_json::Value;

use crate::error::ApiError;
use crate::fields::Fields;

/// Longest body.
const MOST_BYTES: usize = 16 << 20;

/// The fields of a request's body.
///
/// # Errors
/// A body that is too long, cut off, no JSON, or no object.
pub(crate) async fn fields(body: Body) -> Result<Fields, ApiError> {
    let bytes = read(body).await?;
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(object)) => Ok(Fields::new(object)),
        Ok(_) => Err(ApiError::request("the body is JSON, but no object")),
        Err(error) => Err(ApiError::request(format!(
            "the body is no JSON: {} (byte {} of {})",
            error,
            offset(&bytes, error.line(), error.column()),
            bytes.len()
        ))),
    }
}

async fn read(body: Body) -> Result<Bytes, ApiError> {
    use axum::body::HttpBody as _;
    if body.size_hint().lower() > MOST_BYTES as u64 {
        return Err(ApiError::too_large(MOST_BYTES));
    }
    to_bytes(body, MOST_BYTES).await.map_err(|error| {
        let too_long = error.to_string().contains("length limit");
        if too_long { ApiError::too_large(MOST_BYTES) } else { ApiError::request("the body was cut off") }
    })
}

/// Where line and column (both from 1) are, from 0.
fn offset(bytes: &[u8], line: usize, column: usize) -> usize {
    let before = bytes.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1));
    before.map(<[u8]>::len).sum::<usize>() + column.saturating_sub(1)
}
