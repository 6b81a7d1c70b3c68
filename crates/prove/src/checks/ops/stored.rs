//! Keys and values as they are stored.

use samebit_arith::{Isa, KvPage, KvShape, KvType};

use super::Setup;
use crate::error::ProveError;
use crate::findings::{Bits, CaseId, Findings, Part};

/// Positions that are stored.
const POSITIONS: usize = 77;

/// Positions pushed together, one by one and in pieces, and read back from their bytes.
pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let mut random = setup.random("stored");
    for ty in KvType::ALL {
        for shape in [
            KvShape::uniform(3, 64),
            KvShape::uniform(1, 256),
            KvShape { kv_heads: 2, key_dim: 80, value_dim: 48 },
            KvShape { kv_heads: 5, key_dim: 24, value_dim: 20 },
        ] {
            let keys = random.rows(POSITIONS, shape.key_width());
            let values = random.rows(POSITIONS, shape.value_width());
            let push = |pieces: &[usize]| {
                let mut page = KvPage::new(shape, ty);
                let mut done = 0;
                for piece in pieces {
                    let end = done + piece;
                    let keys = &keys[done * shape.key_width()..end * shape.key_width()];
                    page.push(keys, &values[done * shape.value_width()..end * shape.value_width()]);
                    done = end;
                }
                bytes(&page)
            };
            let expected = push(&[1; POSITIONS]);
            let decoded = KvPage::decode(shape, ty, &expected)
                .map_err(|error| ProveError::Internal { reason: error.to_string() })?;
            let pieces = random.pieces(POSITIONS, 30);
            for (detail, found) in [
                ("all at once", push(&[POSITIONS])),
                ("in random pieces", push(&pieces)),
                ("read back from bytes", bytes(&decoded)),
            ] {
                let KvShape { kv_heads, key_dim, value_dim } = shape;
                let id = CaseId {
                    op: "kv_push",
                    shape: format!("{kv_heads} heads of {key_dim} and {value_dim}"),
                    format: ty.to_string(),
                    isa: Isa::Scalar,
                    threads: 1,
                    rows: POSITIONS,
                    detail: format!("{detail}, against one by one"),
                };
                let page = Part::whole("stored page", Bits::Bytes(&expected), Bits::Bytes(&found));
                findings.compare(&id, &[page]);
            }
        }
    }
    Ok(())
}

fn bytes(page: &KvPage) -> Vec<u8> {
    let mut bytes = Vec::new();
    page.encode(&mut bytes);
    bytes
}
