//! The name of the arithmetic that an answer depends on.

use samebit_arith::KvType;
use samebit_checkpoint::hex;
use sha2::{Digest, Sha256};

/// Version of the arithmetic plan. A change of any bit of any operation changes it.
pub const PLAN_VERSION: &str = "sb1";

/// Id of the plan with keys and values stored as `kv`: the plan's version and the first 16 hexadecimal digits of the
/// SHA-256 of its canonical description. Instruction set, threads, chunk sizes and batches are not in it, since they cannot change a bit.
pub fn plan_id(kv: KvType) -> String {
    // Canonical JSON: sorted keys, no spaces. `options` lists options that change bits; there are none yet.
    let description = format!(r#"{{"kv":"{kv}","options":[],"plan":"{PLAN_VERSION}"}}"#);
    format!("{PLAN_VERSION}-{}", short_digest(description.as_bytes()))
}

/// The first 16 hexadecimal digits of a SHA-256.
pub(crate) fn short_digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes)[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf '{"kv":"f16","options":[],"plan":"sb1"}' | sha256sum`
    #[test]
    fn the_id_is_what_anyone_can_compute() {
        assert_eq!(plan_id(KvType::F16), "sb1-43c51c4ee17a579a");
        let ids: std::collections::BTreeSet<String> = KvType::ALL.into_iter().map(plan_id).collect();
        assert_eq!(ids.len(), KvType::ALL.len());
    }
}
